package devicepluginmode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// showPods writes into this node's claims which pods the kubelet has given their slots to, once for
// each pod. While two pods have one id, an old one and the next, it leaves what is there.
func (p *Plugins) showPods(ctx context.Context, listed listing) error {
	var wrong []held
	for _, h := range p.account.holds(listed) {
		if pods := listed[h.resource][h.claim.holder]; h.claim.uid != "" && len(pods) == 1 && h.claim.shown != pods[0].String() {
			h.claim.shown = pods[0].String()
			wrong = append(wrong, h)
		}
	}
	errs := make([]error, len(wrong))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(wrong), func(i int) { errs[i] = p.showPod(ctx, wrong[i]) })
	return errors.Join(errs...)
}

func (p *Plugins) showPod(ctx context.Context, h held) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": strconv.FormatUint(h.claim.version, 10), // it may be another claim of the slot by now
		"annotations":     map[string]string{v1alpha1.PodAnnotation: h.claim.shown}}})
	if err != nil {
		return err
	}
	got, err := p.Client.KubeslotV1alpha1().SlotClaims().Patch(ctx, h.slot.String(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubecri"})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("write into SlotClaim %s that pod %s has the slot: %w", h.slot, h.claim.shown, err)
	}
	p.account.set(h.slot, claimOf(got))
	return nil
}
