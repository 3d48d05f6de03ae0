package dra

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// maxProblemLength is how long what the API server says of an object may be, in characters, in a status: it may
// name each field of each device.
const maxProblemLength = 512

// problems are what keeps pools or DeviceClasses from being as they should be, by their names. Safe for concurrent use.
type problems struct {
	// changed is called with the name of a Configuration of which first returns something else.
	changed func(configuration string)

	mu    sync.Mutex
	texts map[string]string
}

func newProblems(changed func(configuration string)) *problems {
	return &problems{changed: changed, texts: map[string]string{}}
}

// set notes the problem of an object; "" for none.
func (p *problems) set(object, text string) {
	p.mu.Lock()
	before := p.texts[object]
	if p.texts[object] = naming.CutText(text, maxProblemLength); text == "" {
		delete(p.texts, object)
	}
	changed := before != p.texts[object]
	p.mu.Unlock()
	if changed {
		p.changed(configurationOf(object))
	}
}

// replace notes that these are all problems.
func (p *problems) replace(all map[string]string) {
	p.mu.Lock()
	before := maps.Clone(p.texts)
	p.mu.Unlock()
	maps.Copy(before, all)
	for object := range before {
		p.set(object, all[object])
	}
}

// first returns how many objects of a Configuration have a problem, and the first one with it, by name.
func (p *problems) first(configuration string) (objects int, name, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, object := range slices.Sorted(maps.Keys(p.texts)) {
		if configurationOf(object) != configuration {
			continue
		}
		if objects++; objects == 1 {
			name, text = object, p.texts[object]
		}
	}
	return objects, name, text
}

// configurationOf is the name of the Configuration that a pool or a DeviceClass is of.
func configurationOf(object string) string {
	if configuration, _, local := strings.Cut(object, "/"); local {
		return configuration
	}
	if configuration := v1alpha1.DeviceClassConfiguration(object); configuration != "" {
		return configuration
	}
	configuration, _ := slot.SplitInstance(object)
	return configuration
}
