// Package deploy holds manifests of its directory, for programs that compare a cluster
// with them.
package deploy

import "embed"

// Manifests are the definitions (crds/) and the permissions (rbac/), as `kubectl apply -k
// deploy/` applies them.
//
//go:embed crds/*.yaml rbac/*.yaml
var Manifests embed.FS
