package configurationresources

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// as is the object with that UID and resource version.
func as[T informer.Object](obj T, uid, version string) T {
	obj.SetUID(types.UID(uid))
	obj.SetResourceVersion(version)
	return obj
}

// The watch was interrupted, and the API listed anew: what was deleted meanwhile is
// missing from the list, also a slice that was made again under its name.
func TestSlicesAfterAnInterruption(t *testing.T) {
	r := newRig(t)
	f := r.cache.SliceFeed()
	of := func(node string, cameras ...string) *v1alpha1.DeviceSlice {
		var devices []v1alpha1.Device
		for _, name := range cameras {
			d := reported(name)
			d.Properties = map[string]string{"URL": "rtsp://" + name}
			devices = append(devices, d)
		}
		return slice(node, "0", devices...)
	}
	first := as(of("node-a", "cam-000001", "cam-000002"), "a", "1")
	entered, set, replaced := make(chan struct{}, 3), f.Set, make(chan error)
	f.Set = func(s *v1alpha1.DeviceSlice) { entered <- struct{}{}; set(s) }
	r.cache.Read(func(*ledger.Ledger) { // so that Set waits
		go func() {
			replaced <- f.Replace([]any{first, as(of("node-b", "cam-000003"), "b", "2"), as(of("node-c", "cam-000004"), "c", "3")}, "3")
		}()
		if <-entered; f.HasSynced() {
			t.Error("synced before the slices are in the ledger")
		}
	})
	if err := <-replaced; err != nil {
		t.Fatal(err)
	}
	f.Set = set
	r.wantFree("four devices", "cam", 4)
	if !f.HasSynced() {
		t.Error("the list is not synced")
	}
	if first.Spec.Devices[0].Properties != nil {
		t.Error("what no decision needs is kept until the ledger has read all")
	}
	r.schedule(pod("p", "2"), "node-a")

	// node-a lost a device, node-b's slice is gone, node-c's was made again with another.
	if err := f.Replace([]any{as(of("node-a", "cam-000002"), "a", "11"), as(of("node-c", "cam-000005"), "again", "10")}, "12"); err != nil {
		t.Fatal(err)
	}
	for camera, want := range map[string]int{"cam-000001": 0, "cam-000002": 0, "cam-000003": 0, "cam-000004": 0, "cam-000005": 1} {
		r.wantFree("listed again", camera, want)
	}
	if got := len(ledgerOf(r.cache).Holds("p-uid")); got != 2 {
		t.Errorf("the pod holds %d slots, want 2", got)
	}

	if err := f.Delete(as(of("node-c", "cam-000005"), "again", "13")); err != nil {
		t.Fatal(err)
	}
	r.wantFree("no node reports a free one", "cam", 0)
}

// A list that says what the ledger knows already helps nobody: thousands of slices may
// be listed again after an interruption.
func TestUnchangedSlicesActivateNobody(t *testing.T) {
	r := newRig(t)
	s := as(slice("node-a", "0", reported("cam-000001")), "a", "1")
	r.cache.SetSlice(s)
	r.await(pod("waiter", "1"))
	r.requeued()
	r.cache.SetSlice(s)
	r.cache.SetSlice(as(slice("node-a", "0", reported("cam-000001")), "a", "2"))
	r.wantActivated("listed again")
}

// What comes of claims: in the end the ledger has those that exist. A step is "<verb> <slot> <claim> <version>";
// "list" has the claims of a whole list.
func TestClaimsInAnyOrder(t *testing.T) {
	for name, test := range map[string]struct{ steps, want string }{
		"made":                                             {"list 1; added 0 x 5", "0 x"},
		"shown twice":                                      {"list 1; added 0 x 5; added 0 x 5", "0 x"},
		"deleted":                                          {"list 1; added 0 x 5; deleted 0 x 6", ""},
		"another claim of the slot":                        {"list 1; added 0 x 5; deleted 0 x 6; added 0 y 7", "0 y"},
		"the deletion of one before":                       {"list 1; added 0 y 7; deleted 0 x 6", "0 y"},
		"an interruption: listed":                          {"list 1; added 0 x 5; list 7, 0 x 5", "0 x"},
		"an interruption: deleted meanwhile":               {"list 1; added 0 x 5; list 7", ""},
		"an interruption: another by now":                  {"list 1; added 0 x 5; list 7, 0 y 6", "0 y"},
		"restored from a backup: another has the slot":     {"list 1; added 0 x 90; list 7, 0 y 6", "0 y"},
		"restored from a backup: nobody had it":            {"list 1; added 0 x 90; list 7", ""},
		"two slots, of which one is released":              {"list 1; added 0 x 5; added 1 z 6; deleted 1 z 7", "0 x"},
		"what a claim says of itself changes: its labels,": {"list 1; added 0 x 5; updated 0 x 8", "0 x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cache.SetConfiguration(cameras(2))
			shared(r.cache, "cam-000001")
			f := r.cache.ClaimFeed()
			made := func(words []string) *v1alpha1.SlotClaim { // "<slot> <claim> <version>"
				return as(claim("cam-000001-"+words[0], "C:"+words[1]+":node-a"), words[1], words[2])
			}
			for step := range strings.SplitSeq(test.steps, "; ") {
				words, err := strings.Fields(step), error(nil)
				switch words[0] {
				case "list":
					var all []any
					for _, listed := range strings.Split(step, ", ")[1:] {
						all = append(all, made(strings.Fields(listed)))
					}
					err = f.Replace(all, strings.TrimSuffix(words[1], ","))
				case "added":
					err = f.Add(made(words[1:]))
				case "updated":
					err = f.Update(made(words[1:]))
				case "deleted":
					err = f.Delete(made(words[1:]))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, index := range []string{"0", "1"} {
				if uid := ledgerOf(r.cache).ClaimUID("cam-000001-" + index); uid != "" {
					got = append(got, index+" "+uid)
				}
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("the ledger has %q, want %q", got, test.want)
			}
			r.wantFree("those not claimed", "cam", 2-len(got))
		})
	}
}
