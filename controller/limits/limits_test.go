package limits

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	cam   = types.NamespacedName{Namespace: "default", Name: "cam"}
	start = time.Unix(1_000_000_000, 0)
)

// rig decides about Instances that want brokers on nodes, and knows what exists.
type rig struct {
	*testing.T
	*Keeper
	limit  Limit
	exists map[string]Places
	woken  []string
}

func newRig(t *testing.T, limit Limit) *rig {
	r := &rig{T: t, limit: limit, exists: map[string]Places{}}
	r.restart()
	return r
}

// restart loses what the Keeper knows.
func (r *rig) restart() {
	r.Keeper = New(func(types.NamespacedName) (map[string]Places, error) { return maps.Clone(r.exists), nil },
		func(key types.NamespacedName) { r.woken = append(r.woken, key.Name) })
}

func (r *rig) instance(name string, age int) Instance {
	return Instance{Key: types.NamespacedName{Namespace: "default", Name: name}, Configuration: cam, Since: start.Add(time.Duration(age) * time.Second), Exists: r.exists[name]}
}

// want has an Instance of an age take one place on each node that has room, of so many, and
// returns where it has one.
func (r *rig) want(name string, age, n int, nodes ...string) string {
	r.Helper()
	var has []string
	_, err := r.Decide(r.instance(name, age), r.limit, func(room *Room) {
		for _, node := range nodes {
			if len(has) < n && room.Take(node, 1) {
				has = append(has, node)
			}
		}
		room.Withhold(n - len(has))
	})
	if err != nil {
		r.Fatal(err)
	}
	r.exists[name] = Places{}
	for _, node := range has {
		r.exists[name][node] = 1
	}
	return strings.Join(has, " ")
}

// gone has all of an Instance go.
func (r *rig) gone(name string) {
	delete(r.exists, name)
	r.Leave(r.instance(name, 0))
}

func (r *rig) expect(what, got, want string) {
	r.Helper()
	if got != want {
		r.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (r *rig) expectWoken(what string, want ...string) {
	r.Helper()
	if !slices.Equal(r.woken, want) {
		r.Errorf("%s: woken %q, want %q", what, r.woken, want)
	}
	r.woken = nil
}

func TestPerNode(t *testing.T) {
	r := newRig(t, Limit{PerNode: 2, Total: 100})
	r.expect("the first", r.want("a", 1, 1, "n1"), "n1")
	r.expect("the second", r.want("b", 2, 1, "n1"), "n1")
	r.expect("the third", r.want("d", 4, 1, "n1"), "")
	r.expect("an older one that comes later", r.want("c", 3, 1, "n1"), "")
	r.expect("one that another node may have", r.want("e", 5, 1, "n1", "n2"), "n2")
	r.expect("one of the second node", r.want("f", 6, 1, "n2"), "n2")
	r.expect("one that wants three", r.want("g", 7, 3, "n1", "n2", "n3"), "n3")
	if s, want := r.Sum(cam), (Sum{Used: 5, Withheld: 4, FullNodes: 2, FirstFull: "n1"}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	r.expectWoken("while nothing goes")
	r.gone("a")
	r.expectWoken("room on the first node", "c")
	r.expect("a newcomer meanwhile", r.want("h", 0, 1, "n1"), "")
	r.expect("who was woken", r.want("c", 3, 1, "n1"), "n1")
	r.gone("c")
	r.expectWoken("the newcomer is older than the others", "h")
	r.expect("who was woken", r.want("h", 0, 0, "n1"), "")
	r.expectWoken("who wants nothing any more has its room go to the next", "d")
	r.gone("d")
	r.expectWoken("so with one that is gone", "g")
	r.expect("who was woken", r.want("g", 7, 3, "n1", "n2", "n3"), "n1 n3")
	if s := r.Sum(cam); s.Used != 5 || s.Withheld != 1 {
		t.Errorf("at the end %+v", s)
	}
	if got := r.withheld()["cam"]; got != 1 {
		t.Errorf("%d withheld", got)
	}
}

func TestTotal(t *testing.T) {
	r := newRig(t, Limit{PerNode: 2, Total: 3})
	for i := range 6 {
		r.want(fmt.Sprint("i", i), 10-i, 1, fmt.Sprint("n", i))
	}
	if s, want := r.Sum(cam), (Sum{Used: 3, Withheld: 3, TotalReached: true}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	r.gone("i0")
	r.expectWoken("one has gone: the oldest that waits", "i5")
	r.expect("which has a node of its own", r.want("i5", 5, 1, "n5"), "n5")

	r.limit.Total = 1
	r.expect("what exists stays with a lower limit", r.want("i1", 9, 1, "n1"), "n1")
	r.gone("i2")
	r.expectWoken("there is no room yet")
	r.limit.Total = 4
	r.expect("with a higher limit those come first that wait", r.want("new", 0, 1, "n1")+r.want("i1", 9, 1, "n1"), "n1")
	r.expectWoken("they are woken", "i4", "i3")
	r.expect("they have room", r.want("i3", 7, 1, "n3")+r.want("i4", 6, 1, "n4"), "n3n4")
}

// However many wait for however many nodes, not all are looked at under the lock: one that is not is woken to go on.
func TestManyWait(t *testing.T) {
	defer func(before int) { maxLooks = before }(maxLooks)
	maxLooks = 6 // two that wait for two nodes
	r := newRig(t, Limit{PerNode: 1, Total: 100})
	r.want("a", 1, 1, "n1")
	r.want("b", 1, 1, "n2")
	r.want("c", 1, 1, "n3")
	for i := range 5 {
		r.want(fmt.Sprint("i", i), i, 1, "n1", "n2")
	}
	r.want("last", 9, 1, "n3")
	r.gone("c")
	r.expectWoken("the third has not been looked at", "i2")
	r.expect("it has no room", r.want("i2", 2, 1, "n1", "n2"), "")
	r.expectWoken("it is looked at again, and the next", "i4")
	r.gone("a")
	r.expectWoken("one has gone meanwhile: those that were not looked at have their turn first", "i4", "last", "i1")
	r.expect("who was woken", r.want("i4", 4, 1, "n1", "n2")+r.want("last", 9, 1, "n3"), "n1n3")
	for looks := 0; len(r.woken) > 0; looks++ {
		name := r.woken[0]
		if r.woken = r.woken[1:]; looks > 10 {
			t.Fatal("they wake each other without end")
		}
		r.expect(name, r.want(name, int(name[1]-'0'), 1, "n1", "n2"), map[bool]string{true: "n1"}[name == "i4"])
	}
}

// A restarted controller counts what exists before it makes anything.
func TestRestart(t *testing.T) {
	r := newRig(t, Limit{PerNode: 1, Total: 2})
	r.want("a", 3, 1, "n1")
	r.want("b", 2, 1, "n2")
	r.want("c", 1, 1, "n3")
	r.restart()
	r.expect("one that is older, and has nothing", r.want("c", 1, 1, "n3"), "")
	r.expect("one that has", r.want("a", 3, 1, "n1"), "n1")
	if s := r.Sum(cam); s.Used != 2 || s.Withheld != 1 {
		t.Errorf("%+v", s)
	}
	r.Forget(cam)
	if s := r.Sum(cam); s != (Sum{}) {
		t.Errorf("forgotten: %+v", s)
	}
	r.Leave(r.instance("a", 3)) // of a Configuration that is not known
	r.Keeper = New(func(types.NamespacedName) (map[string]Places, error) { return nil, errors.New("why") }, nil)
	if _, err := r.Decide(r.instance("a", 3), r.limit, func(*Room) { t.Error("decides without a count") }); err == nil {
		t.Error("no error")
	}
}

// A Job's pods are on no certain node, and come together or not at all.
func TestNoCertainNode(t *testing.T) {
	r := newRig(t, Limit{PerNode: 1, Total: 7})
	job := func(name string, pods int) (took bool) {
		_, err := r.Decide(r.instance(name, 0), r.limit, func(room *Room) {
			if took = room.Take("", pods); !took {
				room.Withhold(pods)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	if !job("a", 3) || !job("b", 3) || job("c", 3) {
		t.Error("three Jobs of three pods")
	}
	if s := r.Sum(cam); s.Used != 6 || s.Withheld != 3 || s.FullNodes != 0 {
		t.Errorf("%+v", s)
	}
	r.gone("b")
	r.expectWoken("there is room for all three", "c")
	if !job("c", 3) {
		t.Error("the third Job")
	}
	if (*Room)(nil).Has("n") || !(*Room)(nil).Take("n", 5) {
		t.Error("without limits")
	}
}

// What may be on any of several nodes has as many places as these have, less what is there.
func TestAmongSeveralNodes(t *testing.T) {
	r := newRig(t, Limit{PerNode: 2, Total: 100})
	among := func(name string, age, pods int, nodes ...string) (took bool) {
		_, err := r.Decide(r.instance(name, age), r.limit, func(room *Room) {
			if took = room.TakeAmong(nodes, pods); !took {
				room.Withhold(pods)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if took {
			r.exists[name] = Places{Among(nodes): pods}
		}
		return took
	}
	r.expect("on the first node", r.want("a", 1, 1, "n1"), "n1")
	r.expect("on a third", r.want("b", 2, 1, "n3"), "n3")
	if !among("c", 3, 2, "n1", "n2") || !among("d", 4, 1, "n1", "n2") || among("e", 5, 1, "n1", "n2") {
		t.Error("three places of four are free")
	}
	if !among("f", 6, 1, "n1") || among("g", 7, 1, "n1") || !among("h", 8, 1, "n4", "n5", "n6") {
		t.Error("on one node alone; and among nodes that have room")
	}
	if s, want := r.Sum(cam), (Sum{Used: 7, Withheld: 2, FullNodes: 1, FirstFull: "n1"}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	r.expectWoken("while nothing goes")
	r.gone("c")
	r.expectWoken("h may be anywhere, for all that is known")
	r.gone("h")
	r.expectWoken("room among the two", "e")
	if !among("e", 5, 1, "n1", "n2") {
		t.Error("who was woken")
	}
	if among("i", 9, 3, "n7") || r.want("j", 10, 1, "n7") == "" {
		t.Error("more at once than a node may have, and another")
	}
}

// A Job of more pods than a node may have says on how many nodes it found no room.
func TestNodesWithoutRoom(t *testing.T) {
	r := newRig(t, Limit{PerNode: 2, Total: 100})
	for i, nodes := range [][]string{{"n1", "n2"}, {"n1"}} {
		_, err := r.Decide(r.instance(fmt.Sprint("i", i), i), r.limit, func(room *Room) {
			if !room.TakeAmong(nodes, 5) {
				room.Withhold(5)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if s, want := r.Sum(cam), (Sum{Withheld: 10, NodesWithoutRoom: 2}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// Workers that decide at once about Instances that come and go never make more than there is
// room for, and leave no room unused that somebody waits for.
func TestConcurrentDecisions(t *testing.T) {
	limit := Limit{PerNode: 5, Total: 12}
	queue := make(chan string, 100_000)
	k := New(func(types.NamespacedName) (map[string]Places, error) { return nil, nil }, func(key types.NamespacedName) { queue <- key.Name })
	var mu sync.Mutex
	made := map[string]string{} // by Instance: its node
	wanted := map[string]bool{}
	busy := map[string]*sync.Mutex{} // as a queue has one worker on an Instance
	for i := range 60 {
		busy[fmt.Sprint("i", i)] = &sync.Mutex{}
	}
	look := func(name string) {
		busy[name].Lock()
		defer busy[name].Unlock()
		mu.Lock()
		one := Instance{Key: types.NamespacedName{Namespace: "default", Name: name}, Configuration: cam, Since: start}
		if node := made[name]; node != "" {
			one.Exists = Places{node: 1}
		}
		want := wanted[name]
		mu.Unlock()
		if !want {
			mu.Lock()
			delete(made, name)
			mu.Unlock()
			one.Exists = nil
			k.Leave(one)
			return
		}
		if len(one.Exists) > 0 {
			return
		}
		_, err := k.Decide(one, limit, func(r *Room) {
			for _, node := range []string{"n" + name[len(name)-1:], "n0", "n1", "n2"} {
				if r.Take(node, 1) {
					mu.Lock()
					made[name] = node
					on := map[string]int{}
					for _, node := range made {
						on[node]++
					}
					if len(made) > limit.Total || on[node] > limit.PerNode {
						t.Errorf("%d in all, %d on %s", len(made), on[node], node)
					}
					mu.Unlock()
					return
				}
			}
			r.Withhold(1)
		})
		if err != nil {
			t.Error(err)
		}
	}
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 2000 {
				name := fmt.Sprint("i", random.IntN(60))
				mu.Lock()
				wanted[name] = random.IntN(2) == 0
				mu.Unlock()
				look(name)
				select {
				case name := <-queue:
					look(name)
				default:
				}
			}
		})
	}
	workers.Wait()
	for name := range busy { // the queue has each Instance that changed
		look(name)
	}
	for len(queue) > 0 {
		look(<-queue)
	}
	if s := k.Sum(cam); s.Used != len(made) || s.Withheld > 0 && s.Used < limit.Total {
		t.Errorf("at the end %+v, and %d exist", s, len(made))
	}
}

// 10,240 devices of one node cost each decision about as much as a few do.
func BenchmarkManyWait(b *testing.B) {
	k := New(func(types.NamespacedName) (map[string]Places, error) { return nil, nil }, func(types.NamespacedName) {})
	decide := func(i int, exists Places) {
		_, _ = k.Decide(Instance{Key: types.NamespacedName{Name: fmt.Sprint("i", i)}, Configuration: cam, Since: start, Exists: exists}, Limit{PerNode: 50, Total: 1000}, func(r *Room) {
			if !r.Take("n", 1) {
				r.Withhold(1)
			}
		})
	}
	for i := range 10240 {
		decide(i, nil)
	}
	for i := 0; b.Loop(); i++ {
		decide(i%10240, nil)
	}
}
