package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// queued has pods 0 to n claim each the slot of its number, of an Instance with ten.
// While pod 0's patch is under way, meanwhile is called, and the others begin to
// wait. It returns their answers and the patches sent after the first, each of
// which answer may refuse.
func queued(t *testing.T, n int, usage map[string]string, meanwhile func(*api), answer func(patch string) error) (a *api, errs []error, patches []string) {
	in := cam(usage)
	in.Spec.Capacity = 10
	a = newAPI(t, in)
	first, sent := make(chan struct{}), 0
	a.PrependReactor("patch", "instances", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if sent++; sent == 1 {
			<-first
			return false, nil, nil
		}
		patch := string(action.(clienttesting.PatchAction).GetPatch())
		patches = append(patches, patch)
		if answer != nil {
			if err := answer(patch); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
	errs = make([]error, n+1)
	var all sync.WaitGroup
	for pod := range n + 1 {
		all.Go(func() {
			errs[pod] = a.Take(t.Context(), in, Claim{name(pod): {Node: "a", Holder: fmt.Sprint("u", pod)}})
		})
		synctest.Wait()
	}
	if meanwhile != nil {
		meanwhile(a)
	}
	close(first)
	all.Wait()
	return a, errs, patches
}

// listed is a deviceUsage of ten free slots.
func listed() map[string]string {
	usage := map[string]string{}
	for index := range 10 {
		usage[name(index).String()] = ""
	}
	return usage
}

func TestRequestsThatWaitAreSentTogether(t *testing.T) {
	for form, usage := range map[string]map[string]string{"listed": listed(), "sparse": {"cam-1-9": "b"}} {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, errs, patches := queued(t, 5, usage, nil, nil)
				if err := errors.Join(errs...); err != nil || len(patches) != 1 || a.gets != 0 {
					t.Errorf("%v, with %d gets and patches %v after the first", err, a.gets, patches)
				}
				for pod := range 6 {
					if got := a.usage(t)[name(pod).String()]; got != fmt.Sprintf("C:u%d:a", pod) {
						t.Errorf("slot %d is %q", pod, got)
					}
				}
			})
		})
	}
}

// What is wrong with one request is not held against those that were sent with it.
func TestOneOfAGroup(t *testing.T) {
	invalid := apierrors.NewInvalid(akriv0.SchemeGroupVersion.WithKind("Instance").GroupKind(), "cam-1", nil)
	denied := apierrors.NewForbidden(instances.GroupResource(), "cam-1", errors.New("a webhook's word"))
	refuse := func(err error) func(string) error {
		return func(patch string) error {
			if strings.Contains(patch, "C:u3:a") {
				return err
			}
			return nil
		}
	}
	lost := times(1, errors.New("connection reset"))
	for what, test := range map[string]struct {
		usage     map[string]string
		meanwhile func(*api)
		answer    func(patch string) error
		want      string // pod 3's error
		patches   int
	}{
		"its slot was taken":      {usage: listed(), meanwhile: func(a *api) { a.write(t, "cam-1-3", "C:u9:b") }, want: "claimed by holder u9", patches: 1 + 4},
		"a policy is against it":  {usage: listed(), answer: refuse(invalid), want: "default/cam-1", patches: 1 + 4 + maxRefusals},
		"a webhook is against it": {usage: listed(), answer: refuse(denied), want: "a webhook's word", patches: 1 + 4 + 1},
		"the answer was lost":     {usage: listed(), answer: func(string) error { return lost() }, patches: 2},
		"no slot was listed yet":  {patches: 1 + 5},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, errs, patches := queued(t, 5, test.usage, test.meanwhile, test.answer)
				if len(patches) != test.patches {
					t.Errorf("%d patches after the first, want %d: %v", len(patches), test.patches, patches)
				}
				usage := a.usage(t)
				for pod, err := range errs {
					if pod == 3 && test.want != "" {
						if err == nil || !strings.Contains(err.Error(), test.want) || usage["cam-1-3"] == "C:u3:a" {
							t.Errorf("pod 3: %v, want %q; its slot is %q", err, test.want, usage["cam-1-3"])
						}
						continue
					}
					if got := usage[name(pod).String()]; err != nil || got != fmt.Sprintf("C:u%d:a", pod) {
						t.Errorf("pod %d: %v, its slot is %q", pod, err, got)
					}
				}
			})
		})
	}
}

// What waits for a pod that has no more time is not sent.
func TestNoMoreTimeInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		a, _, patches := queued(t, 1, listed(), func(a *api) {
			all.Go(func() {
				if err := a.Take(ctx, cam(listed()), Claim{name(1): {Node: "a", Holder: "late"}}); !errors.Is(err, context.Canceled) {
					t.Errorf("answer %v", err)
				}
			})
			synctest.Wait()
			end()
		}, nil)
		all.Wait()
		if got := a.usage(t)["cam-1-1"]; got != "C:u1:a" || len(patches) != 1 || strings.Contains(patches[0], "late") {
			t.Errorf("slot 1 is %q after %v", got, patches)
		}
	})
}
