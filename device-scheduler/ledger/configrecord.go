package ledger

import (
	"strings"

	"github.com/google/btree"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func (l *Ledger) config(name string) *configRecord {
	conf := l.configs[name]
	if conf == nil {
		conf = &configRecord{name: strings.Clone(name), configurations: map[string]*akriv0.Configuration{}, devices: map[*device]struct{}{},
			groups: map[setKey]*group{}, classes: map[setKey]*class{},
			waiting: map[*device][]*slotState{}, priorities: map[int32]int{},
			spare: btree.NewFreeListG[*device](btree.DefaultFreeListSize)}
		l.configs[conf.name] = conf
	}
	return conf
}

func (l *Ledger) dropConfig(conf *configRecord) {
	if len(conf.configurations) == 0 && len(conf.devices) == 0 {
		delete(l.configs, conf.name)
	}
}

// unique is the scope of the Configuration in force, "" when slots alone count.
func (conf *configRecord) unique() akriv0.UniqueScope {
	if conf.owner == nil {
		return ""
	}
	return conf.owner.Spec.Unique()
}

// discovers reports whether nodes reach the devices that others discover.
func (conf *configRecord) discovers() bool {
	return conf.owner != nil && conf.owner.Spec.Discovery != nil
}
