// Package webhook refuses Configurations that package validation finds wrong, when they
// are written. All replicas of the controller serve it, whoever leads. Each makes its own
// certificate, which no other process ever has the key of, and adds it to the caBundle of
// the ValidatingWebhookConfiguration: see Keeper.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kubeslot/kubeslot/controller/validation"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Path is where the webhook is served.
const Path = "/validate-configuration"

// Handler answers admission reviews of Configurations. What it cannot judge it lets
// through, with a warning: the webhook is a help, and must keep nobody from working.
type Handler struct {
	Checker *validation.Checker
	// Owner returns another Configuration that has the name of this one, or nil.
	Owner func(types.NamespacedName) *akriv0.Configuration
	// HeldBeyond counts the slots that are held of a Configuration beyond a capacity, and names their
	// Instances.
	HeldBeyond func(of types.NamespacedName, capacity int) (slots int, instances []string)
	// NoDRA says why the API server cannot give devices by DRA; "" when it can, or that is not known.
	NoDRA func() string
}

var _ admission.Handler = &Handler{}

// Handle implements admission.Handler. It writes nothing, and reads memory alone, but for
// the API server's version at times.
func (h *Handler) Handle(ctx context.Context, request admission.Request) (response admission.Response) {
	result := allowed
	defer func() {
		if p := recover(); p != nil { // controller-runtime's answer would refuse the request
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "Could not check a Configuration", "configuration", klog.KRef(request.Namespace, request.Name), "stack", string(debug.Stack()))
			result, response = failed, unchecked("kubeslot: the Configuration was not checked: the check itself failed, see the controller's log")
		}
		reviews.WithLabelValues(result).Inc()
	}()
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update || request.SubResource != "" {
		return admission.Allowed("")
	}
	now, err := read(request.Object.Raw)
	if err != nil {
		result = failed
		return unchecked(fmt.Sprintf("kubeslot: the Configuration was not checked: %v", err))
	}
	if now.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	found := h.Checker.Check(now)
	wasDRA := false
	if request.Operation == admissionv1.Update {
		// What was stored before there was a webhook, or while it was down, can still be
		// changed: only what is new is refused.
		if before, err := read(request.OldObject.Raw); err == nil {
			if apiequality.Semantic.DeepEqual(&before.Spec, &now.Spec) {
				return admission.Allowed("")
			}
			found, wasDRA = found.Without(h.Checker.Check(before)), before.Spec.IsDRA()
			if now.Spec.Slots() < before.Spec.Slots() {
				found.Warnings = append(found.Warnings, h.lowered(now)...)
			}
		}
	}
	if now.Spec.IsDRA() && !wasDRA {
		h.checkDRA(now, &found)
	}
	key := types.NamespacedName{Namespace: request.Namespace, Name: now.Name}
	if owner := h.Owner(key); owner != nil && request.Operation == admissionv1.Create {
		why := "has the name, which must be unique in the cluster"
		if owner.Name != now.Name {
			why = "has or may have an Instance of this name"
		}
		found.Warnings = append(found.Warnings, fmt.Sprintf("metadata.name: Configuration %s/%s %s: this one will find nothing; rename it", owner.Namespace, owner.Name, why))
	}
	found = found.Bounded()
	for i, warning := range found.Warnings {
		found.Warnings[i] = printable(warning)
	}
	if len(found.Errors) == 0 {
		return admission.Allowed("").WithWarnings(found.Warnings...)
	}
	result = denied
	klog.FromContext(ctx).V(2).Info("Refused a Configuration", "configuration", klog.KRef(request.Namespace, now.Name), "user", request.UserInfo.Username, "errors", found.Message())
	return refusal(now.Name, found)
}

// maxNamed is how many Instances a warning names: the API server cuts warnings of more than 256 characters.
const maxNamed = 2

// lowered warns of slots that are held beyond the capacity.
func (h *Handler) lowered(now *akriv0.Configuration) []string {
	key := types.NamespacedName{Namespace: now.Namespace, Name: now.Name}
	held, instances := h.HeldBeyond(key, now.Spec.Slots())
	if held == 0 {
		return nil
	}
	of := strings.Join(instances[:min(len(instances), maxNamed)], ", ")
	if more := len(instances) - maxNamed; more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	return []string{fmt.Sprintf("spec.capacity: %d slots beyond %d are in use (%s): pods keep them until they end, "+
		"and their containers do not start again; raise it again, or delete the pods", held, now.Spec.Slots(), of)}
}

// checkDRA finds what is wrong with a Configuration that DRA is to give from now on.
func (h *Handler) checkDRA(now *akriv0.Configuration, found *validation.Findings) {
	if why := h.NoDRA(); why != "" {
		found.Errors = append(found.Errors, field.Forbidden(field.NewPath("spec", "allocator"), why))
	}
	if scope := now.Spec.UniqueScope; scope != "" && scope != akriv0.UniquePerContainer {
		found.Warnings = append(found.Warnings, fmt.Sprintf("spec.uniqueScope: %s has no effect with allocator DRA: "+
			"a ResourceClaim says by its constraints which of its devices have to be different ones", scope))
	}
}

// read reads a Configuration. One that cannot be read is not for the CRD's schema, which
// the API server has checked before.
func read(raw []byte) (*akriv0.Configuration, error) {
	c := &akriv0.Configuration{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	return c, nil
}

// printable has no control characters: the API server drops warnings that have any.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// unchecked lets a request through, and says that.
func unchecked(why string) admission.Response {
	return admission.Allowed("").WithWarnings(why)
}

// refusal is answered as the API server answers for its own objects: 422, with a cause
// for each field.
func refusal(name string, found validation.Findings) admission.Response {
	status := apierrors.NewInvalid(akriv0.SchemeGroupVersion.WithKind("Configuration").GroupKind(), name, found.Errors).Status()
	status.Message = found.Message()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: false, Result: &status, Warnings: found.Warnings,
	}}
}

// New makes the webhook's HTTP handler, with controller-runtime's metrics of webhooks.
func New(h *Handler) (http.Handler, error) {
	return admission.StandaloneWebhook(&admission.Webhook{Handler: h}, admission.StandaloneOptions{MetricsPath: Path})
}
