package recovery

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kube-scheduler/claims"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
)

// SweepInterval is how long a claim for a waiting pod, of a scheduler that was
// killed before it could bind the pod, keeps a slot from others at most.
const SweepInterval = 10 * time.Second

// Sweeper releases orphaned claims: those that were made for pods which wait unbound.
type Sweeper struct {
	Logger klog.Logger
	Client kubernetes.Interface
	Cache  *slotcache.Cache
	Claims *claims.Writer
}

// Run sweeps now and after each SweepInterval, until ctx is done.
func (s *Sweeper) Run(ctx context.Context) { wait.UntilWithContext(ctx, s.Sweep, SweepInterval) }

// Sweep releases the orphaned claims that there are. What fails is logged, and is for the next
// Sweep.
func (s *Sweeper) Sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, SweepInterval)
	defer cancel()
	orphans, pods := s.Cache.OrphanedClaims()
	for _, orphan := range orphans {
		pod := pods[orphan.Holder]
		if s.boundByNow(ctx, pod) {
			continue
		}
		logger := s.Logger.WithValues("slot", orphan.Name.String(), "node", orphan.Node, "pod", klog.KObj(pod))
		if err := s.Claims.ReleaseOrphan(ctx, orphan.Name, orphan.UID); err != nil {
			logger.Error(err, "Cannot release a claim that was made for a pod which was not bound; trying again", "after", SweepInterval)
			continue
		}
		logger.Info("Released a claim that was made for a pod which was not bound")
	}
}

// boundByNow asks the API server: the scheduler that made the claim may have bound
// the pod the moment before it ended. It is true also without an answer.
func (s *Sweeper) boundByNow(ctx context.Context, pod *v1.Pod) bool {
	live, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	return err != nil || live.UID == pod.UID && live.Spec.NodeName != ""
}
