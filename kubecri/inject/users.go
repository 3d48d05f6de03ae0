package inject

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// UserNamespace says which users of the node a pod's users are. The zero value is
// a pod with the node's own users.
type UserNamespace struct {
	UIDs, GIDs []*runtimeapi.IDMapping
	// Unknown is a pod with users of its own when it is not said which.
	Unknown bool
}

// Own reports whether the pod has a user namespace of its own (hostUsers: false).
func (u UserNamespace) Own() bool { return u.Unknown || len(u.UIDs)+len(u.GIDs) > 0 }

// usersFromCRI reads those of a pod.
func usersFromCRI(pod *runtimeapi.PodSandboxConfig) UserNamespace {
	options := pod.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if options.GetMode() != runtimeapi.NamespaceMode_POD {
		return UserNamespace{}
	}
	return UserNamespace{UIDs: options.GetUids(), GIDs: options.GetGids()}
}
