package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// The peer of what is measured: a bare HTTP client with the nodes' certificates that does the
// fewest requests that could do the same, on a custom resource of no schema that no policy
// looks at. What it costs is the API server's own, below which no agent on the nodes can get.
const (
	bareGroup = "bench.kubeslot.io"
	barePath  = "/apis/" + bareGroup + "/v1/bares"
)

// bare is what the peer cost.
type bare struct {
	Restart        cost // each node connects and watches one object
	Join           cost // each node updates one object to a slice's size, all at once
	Claim, Release cost // of all: one creates and deletes a small object, one after the other
}

// measureBare runs the peer, while no hollow node runs.
func (b *bench) measureBare(ctx context.Context, r *result) (err error) {
	b.endNodes()
	b.nodes = nil
	if err := b.bareResource(ctx); err != nil {
		return err
	}
	clients := make([]*http.Client, r.Nodes)
	if err := parallel(ctx, r.Nodes, func(i int) (err error) {
		clients[i], err = b.bareClient(i)
		return err
	}); err != nil {
		return err
	}
	watches := make([]io.Closer, r.Nodes)
	defer func() {
		for _, w := range watches {
			if w != nil {
				_ = w.Close()
			}
		}
	}()
	if r.Bare.Restart, err = b.measure(ctx, func() error {
		return parallel(ctx, r.Nodes, func(i int) (err error) {
			watches[i], err = b.bareWatch(ctx, clients[i], nodeName(i))
			return err
		})
	}); err != nil {
		return err
	}
	if err := b.measureBareJoin(ctx, r, clients); err != nil {
		return err
	}
	spec := v1alpha1.SlotClaimSpec{NodeName: nodeName(0), Container: "app", Holder: "holder",
		Pod: &v1alpha1.PodReference{Namespace: namespace, Name: "pod-0", UID: "00000000-0000-0000-0000-000000000000"}}
	each := func(one func(client *http.Client, name string) error) (cost, error) {
		return b.measure(ctx, func() error {
			for i := range b.options.claims {
				if err := one(clients[i*r.Nodes/b.options.claims], fmt.Sprintf("claim-%d", i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if r.Bare.Claim, err = each(func(client *http.Client, name string) error {
		_, err := b.bareWrite(ctx, client, http.MethodPost, "", bareObject(name, "", spec))
		return err
	}); err != nil {
		return err
	}
	r.Bare.Release, err = each(func(client *http.Client, name string) error {
		_, err := b.bareWrite(ctx, client, http.MethodDelete, "/"+name, nil)
		return err
	})
	return err
}

// measureBareJoin has each node update an object that is there, as hollow nodes have a slice
// without devices, to what a slice says.
func (b *bench) measureBareJoin(ctx context.Context, r *result, clients []*http.Client) (err error) {
	slices, err := b.client.KubeslotV1alpha1().DeviceSlices().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(slices.Items) == 0 {
		return errors.Join(err, errors.New("there is no DeviceSlice to take as the pattern"))
	}
	versions := make([]string, r.Nodes)
	if err := parallel(ctx, r.Nodes, func(i int) (err error) {
		versions[i], err = b.bareWrite(ctx, clients[i], http.MethodPost, "", bareObject(nodeName(i), "", nil))
		return err
	}); err != nil {
		return err
	}
	r.Bare.Join, err = b.measure(ctx, func() error {
		var all errgroup.Group
		for i, client := range clients {
			all.Go(func() error {
				_, err := b.bareWrite(ctx, client, http.MethodPut, "/"+nodeName(i), bareObject(nodeName(i), versions[i], slices.Items[0].Spec))
				return err
			})
		}
		return all.Wait()
	})
	return err
}

// bareClient has a node's certificate, and a connection of its own.
func (b *bench) bareClient(i int) (*http.Client, error) {
	config := rest.CopyConfig(b.identities[i])
	config.Dial = countedDial(&b.traffic)
	return rest.HTTPClientFor(config)
}

func bareObject(name, version string, spec any) []byte {
	text, err := json.Marshal(map[string]any{"apiVersion": bareGroup + "/v1", "kind": "Bare",
		"metadata": metav1.ObjectMeta{Name: name, ResourceVersion: version}, "spec": spec})
	if err != nil {
		panic(err) // of our own types
	}
	return text
}

// bareResource defines the custom resource, which all nodes may write.
func (b *bench) bareResource(ctx context.Context) error {
	post := func(path string, object any) error {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		return b.kube.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Error()
	}
	err := post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "bares." + bareGroup},
		"spec": map[string]any{
			"group": bareGroup, "scope": "Cluster", "names": map[string]any{"plural": "bares", "singular": "bare", "kind": "Bare", "listKind": "BareList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	})
	if err != nil {
		return err
	}
	roles := b.kube.RbacV1()
	if _, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{bareGroup}, Resources: []string{"bares"}, Verbs: []string{"create", "update", "delete", "watch"}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bare"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bare"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:kubecris"}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	// The API server serves it, and has a cache of it, when a node can watch it.
	client, err := b.bareClient(0)
	if err != nil {
		return err
	}
	return await(ctx, "the bare resource is served", func() error {
		w, err := b.bareWatch(ctx, client, nodeName(0))
		if err != nil {
			return err
		}
		return w.Close()
	})
}

// bareWatch opens a watch of one object, from what the API server's cache has.
func (b *bench) bareWatch(ctx context.Context, client *http.Client, name string) (io.Closer, error) {
	query := url.Values{"watch": {"true"}, "resourceVersion": {"0"}, "fieldSelector": {"metadata.name=" + name}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.admin.Host+barePath+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("watch %s: %s", barePath, response.Status)
	}
	return response.Body, nil
}

// bareWrite writes an object and returns its resourceVersion, if it is answered.
func (b *bench) bareWrite(ctx context.Context, client *http.Client, method, path string, body []byte) (version string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, b.admin.Host+barePath+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer metav1.PartialObjectMetadata
	if response.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("%s %s%s: %s", method, barePath, path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s %s%s: %w", method, barePath, path, err)
	}
	return answer.ResourceVersion, nil
}
