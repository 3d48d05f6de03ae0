package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditEvent is a write of the API server's audit log.
type auditEvent struct {
	Verb      string
	UserAgent string
	User      struct {
		Username string
		Groups   []string
	}
	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus struct {
		Code    int
		Message string
	}
	RequestReceivedTimestamp time.Time
}

// does says who does what to which kind of object.
func (e auditEvent) does() string {
	return fmt.Sprintf("%s: %s %s/%s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource)
}

// auditEvents are all writes since the cluster came up.
func auditEvents(r *rig) []auditEvent {
	r.Helper()
	events, err := readAudit()
	r.check(err)
	return events
}

func readAudit() ([]auditEvent, error) {
	data, err := os.ReadFile(shared.AuditLog())
	if err != nil {
		return nil, err
	}
	var events []auditEvent
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) { // the last one may be half written
			break
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", shared.AuditLog(), err)
		}
		events = append(events, e)
	}
	return events, nil
}

// controllerUser is the one writer of Instances.
const controllerUser = "system:kubeslot-controller"

// ours reports whether the user is one of our components.
func ours(user string) bool {
	return user == "system:kube-scheduler" || user == controllerUser || strings.HasPrefix(user, "system:kubecri:")
}

// checkWrites looks at all that our components have written while the tests ran. None
// lacks a right or is refused by an admission policy, and each object has one writer:
// the controller writes Instances, ResourceSlices and DeviceClasses, and a node's kubecri
// that node's DeviceSlices. Only claims have several.
func checkWrites(ctx context.Context) error {
	events, err := readAudit()
	if err != nil {
		return err
	}
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	refused, allowed := map[string]auditEvent{}, 0
	for _, e := range events {
		if e.UserAgent == rogueAgent || !ours(e.User.Username) {
			continue
		}
		message := e.ResponseStatus.Message
		switch {
		case strings.Contains(message, "ValidatingAdmissionPolicy"):
			complain("%s %s: %s", e.does(), e.ObjectRef.Name, message)
		case e.ResponseStatus.Code == http.StatusForbidden && !strings.Contains(message, "is being terminated"):
			refused[e.does()] = e
		case e.ResponseStatus.Code < http.StatusBadRequest:
			allowed++
			if !e.writesItsOwn() {
				complain("%s %s, which another writes", e.does(), e.ObjectRef.Name)
			}
		}
	}
	if allowed == 0 {
		complain("the audit log has no write of ours")
	}
	// An API server that was just restarted has read no roles yet and refuses what it
	// allows a moment later: a right is missing when it is refused now, too.
	for what, e := range refused {
		review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: e.User.Username, Groups: e.User.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: e.Verb, Group: e.ObjectRef.APIGroup,
				Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name}}}, metav1.CreateOptions{})
		if err != nil {
			return errors.Join(append(wrong, err)...)
		}
		if !review.Status.Allowed {
			complain("%s is not allowed: %s", what, e.ResponseStatus.Message)
		}
	}
	return errors.Join(wrong...)
}

// writesItsOwn reports whether a component of ours may be the writer of the object.
func (e auditEvent) writesItsOwn() bool {
	switch e.ObjectRef.Resource {
	case "instances", "resourceslices", "deviceclasses":
		return e.User.Username == controllerUser
	case "deviceslices":
		return strings.HasPrefix(e.ObjectRef.Name, strings.TrimPrefix(e.User.Username, "system:kubecri:")+"-")
	}
	return true
}
