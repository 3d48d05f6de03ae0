package brokers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func (r *Reconciler) memory(instance types.UID) memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memories[instance]
}

// remember keeps what there is to keep of the Instance, which is the only one of its
// name.
func (r *Reconciler) remember(key types.NamespacedName, instance types.UID, m memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.uids[key]; before != "" && before != instance {
		delete(r.memories, before)
		delete(r.told, before)
	}
	r.uids[key] = instance
	r.memories[instance] = m
}

// forget is called when no Instance has the name.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, r.uids[key])
	delete(r.told, r.uids[key])
	delete(r.uids, key)
}

// tell attaches Events to the Instance, and of what concerns all Instances alike to the
// Configuration. A problem is told when it is new.
func (r *Reconciler) tell(f *facts, p Problem, restarts []string) {
	for _, message := range restarts {
		ended.Inc()
		r.warn(f.instance, "BrokerEnded", "RestartBroker", message)
	}
	switch {
	case p.Reason == InvalidSpec:
		if !f.spec.warned.Swap(true) {
			r.warn(f.configuration, p.Reason, createBroker, p.Message)
		}
		p = Problem{}
	case f.spec != nil && f.spec.err == nil && !f.spec.asksForDevice && !f.spec.warned.Swap(true):
		r.warn(f.configuration, "BrokerWithoutDevice", createBroker, "The brokers request no device: a container that is to use one needs the resource limit \"{{PLACEHOLDER}}\": \"1\"")
	}
	if r.isNews(f.instance.UID, p) {
		r.warn(f.instance, p.Reason, createBroker, p.Message)
	}
}

const createBroker = "CreateBroker"

func (r *Reconciler) warn(about runtime.Object, reason, action, message string) {
	r.Recorder.Eventf(about, nil, corev1.EventTypeWarning, reason, action, "%s", message)
}

// isNews reports whether an Instance has a problem, and it is another than before.
func (r *Reconciler) isNews(instance types.UID, p Problem) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == (Problem{}) {
		delete(r.told, instance)
		return false
	}
	before := r.told[instance]
	r.told[instance] = p
	return before != p
}
