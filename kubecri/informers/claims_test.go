package informers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// claimsAPI is an API server whose watches of claims the test feeds. Its lists have version 100.
type claimsAPI struct {
	client *fake.Clientset
	kube   *kubefake.Clientset
	*Informers

	mu      sync.Mutex
	listed  []*v1alpha1.SlotClaim
	opened  []string                              // "name from version", in order
	running map[string]*watch.RaceFreeFakeWatcher // by name, "" for all of the node
}

func claim(index int, version string) *v1alpha1.SlotClaim {
	return &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: slotName(index).String(), UID: apitypes.UID(version), ResourceVersion: version}, Spec: v1alpha1.SlotClaimSpec{NodeName: "node-a"}}
}

func slotName(index int) slot.Name { return slot.Name{Instance: "cam-a1b2c3", Index: index} }

// newClaimsAPI starts the informers with the claims listed. It is called in a synctest bubble.
func newClaimsAPI(t *testing.T, listed ...*v1alpha1.SlotClaim) *claimsAPI {
	t.Helper()
	a := &claimsAPI{client: fake.NewSimpleClientset(), kube: kubefake.NewClientset(), running: map[string]*watch.RaceFreeFakeWatcher{}}
	a.list(listed...)
	a.client.PrependReactor("list", "slotclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		list := &v1alpha1.SlotClaimList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
		for _, c := range a.listed {
			list.Items = append(list.Items, *c)
		}
		return true, list, nil
	})
	a.client.PrependWatchReactor("slotclaims", func(action clienttesting.Action) (bool, watch.Interface, error) {
		options := action.(clienttesting.WatchActionImpl).ListOptions
		name := ""
		for part := range strings.SplitSeq(options.FieldSelector, ",") {
			name += strings.TrimPrefix(part, "metadata.name=")
		}
		name = strings.TrimSuffix(name, "spec.nodeName=node-a")
		a.mu.Lock()
		defer a.mu.Unlock()
		w := watch.NewRaceFreeFake()
		a.opened = append(a.opened, fmt.Sprintf("%s from %s", strings.TrimPrefix(name, "cam-a1b2c3"), options.ResourceVersion))
		a.running[name] = w
		return true, w, nil
	})
	a.Informers = New(a.kube, a.client, "node-a")
	stop := make(chan struct{})
	a.Start(stop)
	t.Cleanup(func() {
		close(stop)
		a.Shutdown()
	})
	synctest.Wait()
	return a
}

// list has the API server list these claims from now on.
func (a *claimsAPI) list(listed ...*v1alpha1.SlotClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed = listed
}

// breaks ends the running watch of a claim's name, or of all for "".
func (a *claimsAPI) breaks(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[name].Stop()
}

// tell sends an event to the running watch of the claim's name, or of all.
func (a *claimsAPI) tell(t *testing.T, kind watch.EventType, c *v1alpha1.SlotClaim) {
	t.Helper()
	a.mu.Lock()
	w := a.running[c.Name]
	if w == nil || w.IsStopped() {
		w = a.running[""]
	}
	a.mu.Unlock()
	if w == nil || w.IsStopped() {
		t.Fatalf("%s is not watched", c.Name)
	}
	w.Action(kind, c)
	synctest.Wait()
}

// watched wants these watches to be running, such as "-0" and "" for all of the node.
func (a *claimsAPI) watched(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	got := []string{}
	for name, w := range a.running {
		if !w.IsStopped() {
			got = append(got, strings.TrimPrefix(name, "cam-a1b2c3"))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: watches of %q, want %q", what, got, want)
	}
}

// shows wants the cache to have these claims, by index and UID.
func (a *claimsAPI) shows(t *testing.T, what string, want map[int]string) {
	t.Helper()
	synctest.Wait()
	got, wanted := map[string]string{}, map[string]string{}
	for _, obj := range a.Claims.Informer().GetStore().List() {
		c := obj.(*v1alpha1.SlotClaim)
		got[c.Name] = string(c.UID)
	}
	for index, uid := range want {
		wanted[slotName(index).String()] = uid
	}
	if !maps.Equal(got, wanted) {
		t.Errorf("%s: the cache has %v, want %v", what, got, wanted)
	}
}

// opens wants these watches to have been opened, in any order of those that begin together.
func (a *claimsAPI) opens(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.opened)
	if !slices.Equal(a.opened, want) {
		t.Errorf("opened %q, want %q", a.opened, want)
	}
	a.opened = nil
}

// A claim that there is is watched by its name from the list on, and when it is deleted it
// goes from the cache, and so does its watch.
func TestAClaimIsWatchedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClaimsAPI(t, claim(0, "17"), claim(1, "18"))
		a.opens(t, "-0 from 100", "-1 from 100")
		a.tell(t, watch.Deleted, claim(0, "17"))
		a.shows(t, "one is deleted", map[int]string{1: "18"})
		a.watched(t, "one is deleted", "-1")
	})
}

// A claim that was made is in the cache at once, and watched from its version on.
func TestACreatedClaimIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClaimsAPI(t)
		a.opens(t)
		a.ClaimCreated(claim(3, "120"))
		a.opens(t, "-3 from 120")
		a.shows(t, "made", map[int]string{3: "120"})
		a.tell(t, watch.Deleted, claim(3, "120"))
		a.shows(t, "deleted", nil)
		a.watched(t, "deleted")
		a.ClaimCreated(claim(3, "130"))
		a.opens(t, "-3 from 130")
		a.shows(t, "made again", map[int]string{3: "130"})
	})
}

// The claim of a slot that was assigned to a pod here is watched before there is one, as long
// as the pod is here: its scheduler may have made it.
func TestAnAssignedSlotIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClaimsAPI(t)
		pods := a.kube.CoreV1().Pods("ns")
		pod := assignedPod(t, "u1", 0)
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		a.opens(t, "-0 from 0")
		a.tell(t, watch.Added, claim(0, "90"))
		a.shows(t, "its scheduler's claim", map[int]string{0: "90"})
		a.ClaimCreated(claim(0, "90"))
		a.opens(t) // it is watched already
		a.tell(t, watch.Deleted, claim(0, "90"))
		a.shows(t, "deleted", nil)
		a.watched(t, "the pod may claim it again", "-0")
		pod.Status.Phase = corev1.PodSucceeded
		if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		a.watched(t, "the pod has ended")
	})
}

// With a fifth claim all are watched by spec.nodeName, after they were listed again.
func TestManyClaimsAreWatchedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []*v1alpha1.SlotClaim{claim(0, "10"), claim(1, "11"), claim(2, "12"), claim(3, "13")}
		a := newClaimsAPI(t, all...)
		a.watched(t, "four", "-0", "-1", "-2", "-3")
		a.list(append(all, claim(4, "101"))...)
		time.Sleep(time.Minute) // a watch of less than a second is an error to client-go
		a.ClaimCreated(claim(4, "101"))
		time.Sleep(time.Minute)
		a.watched(t, "five", "")
		a.shows(t, "five", map[int]string{0: "10", 1: "11", 2: "12", 3: "13", 4: "101"})
		for i := range 4 {
			a.tell(t, watch.Deleted, &v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: slotName(i).String(), ResourceVersion: "200"}})
		}
		a.shows(t, "one is left", map[int]string{4: "101"})
		a.opens(t, " from 100", "-0 from 100", "-1 from 100", "-2 from 100", "-3 from 100")
		a.breaks("") // its time is up
		time.Sleep(time.Minute)
		a.opens(t, "-4 from 200")
	})
}

// When a watch by name breaks, claims are listed again.
func TestClaimsAreListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClaimsAPI(t, claim(0, "17"), claim(1, "18"))
		a.list(claim(1, "18"), claim(2, "90"))
		time.Sleep(time.Second)
		a.breaks(slotName(0).String())
		time.Sleep(time.Minute)
		a.shows(t, "a watch has broken", map[int]string{1: "18", 2: "90"})
		a.watched(t, "a watch has broken", "-1", "-2")
		a.list()
		time.Sleep(11 * time.Minute)
		a.shows(t, "the time of all watches is up", nil)
	})
}

// A claim that somebody makes in the node's name is seen within two minutes, and then watched;
// other watches go on.
func TestAStrangersClaimIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClaimsAPI(t, claim(0, "17"))
		a.list(claim(0, "17"), claim(5, "95"))
		time.Sleep(2*time.Minute + time.Second)
		a.shows(t, "a stranger's claim", map[int]string{0: "17", 5: "95"})
		a.opens(t, "-0 from 100", "-5 from 95")
		a.tell(t, watch.Deleted, claim(5, "95"))
		a.shows(t, "deleted", map[int]string{0: "17"})
	})
}

// The list may be from before a claim that was made here, or from after it is gone again.
func TestAClaimMadeWhileListing(t *testing.T) {
	for version, stays := range map[string]bool{"101": true, "99": false} {
		synctest.Test(t, func(t *testing.T) {
			a := newClaimsAPI(t, claim(0, "17"))
			time.Sleep(time.Second)
			a.breaks(slotName(0).String())
			synctest.Wait() // client-go pauses before the list
			a.ClaimCreated(claim(1, version))
			time.Sleep(time.Minute)
			want := map[int]string{0: "17"}
			if stays {
				want[1] = version
			}
			a.shows(t, "made at "+version+", listed at 100", want)
		})
	}
}

// After a restore from a backup the versions are lower than what was seen.
func TestAListOfLowerVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newClaimsAPI(t, claim(0, "17"))
		a.tell(t, watch.Modified, claim(0, "150"))
		a.list()
		time.Sleep(time.Second)
		a.breaks(slotName(0).String())
		time.Sleep(time.Minute)
		a.shows(t, "restored", nil)
		a.watched(t, "restored")
	})
}

// assignedPod is a pod as a scheduler binds it to the node, with a slot.
func assignedPod(t *testing.T, uid string, index int) *corev1.Pod {
	t.Helper()
	c := types.ContainerInfo{}
	assignment.Set(&c, []assignment.Grant{{Resource: "cam", Slot: slotName(index)}})
	notes, err := assignment.Encode(&types.PodInfo{Name: "pod", NodeName: "node-a", RunningContainers: map[string]types.ContainerInfo{"main": c}}, uid, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: apitypes.UID(uid), Annotations: notes},
		Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"akri.sh/cam": resource.MustParse("1")}}}}}}
}
