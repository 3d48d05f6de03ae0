// Package waitreason has the reasons for which pods with slots wait, and how long one pod has
// waited for each, for the metrics of waiting pods. Its only state is in a pod's Record, which
// belongs to who made it.
package waitreason

import (
	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// Reason is why a pod waits. Where nodes differ the last one of these counts: the pod is
// nearest to running there.
type Reason uint8

// The reasons of a try. RefusedElsewhere is of a pod that other plugins refuse on all nodes
// before this one is asked, and SlotsFree of one for which there are slots.
const (
	NotTried Reason = iota
	RefusedElsewhere
	InvalidRequest
	ResourceNameTaken
	LedgerNotRead
	NamespaceNotAllowed
	AllocatedByDRA
	UnknownResource
	NoNode
	NoCommonNode
	NotReachable
	Impossible
	Held
	SearchLimit
	NotAdvertised
	KubecriAway
	SlotsFree
	numReasons
)

// Values of label reason that do not depend on the last try.
const (
	// Gated pods have spec.schedulingGates, and are not tried.
	Gated = "Gated"
	// OtherScheduler is that of pods whose spec.schedulerName is none of this process's.
	OtherScheduler = "OtherScheduler"
)

// Names are the values of label reason.
var Names = [numReasons]string{
	NotTried:            "NotTried",
	RefusedElsewhere:    "Other",
	InvalidRequest:      "InvalidRequest",
	ResourceNameTaken:   "ResourceNameTaken",
	LedgerNotRead:       "DevicesNotRead",
	NamespaceNotAllowed: "NamespaceNotAllowed",
	AllocatedByDRA:      "AllocatedByDRA",
	UnknownResource:     "UnknownResource",
	NoNode:              "NoNode",
	NoCommonNode:        "Apart",
	NotReachable:        "NotReachable",
	Impossible:          "TooFew",
	Held:                "Held",
	SearchLimit:         "SearchLimit",
	NotAdvertised:       "NotAdvertised",
	KubecriAway:         "KubecriAway",
	SlotsFree:           "Other",
}

// Of is the reason of a shortfall. The ledger's own are those from UnknownResource on, in the same order.
func Of(s *ledger.Shortfall) Reason { return UnknownResource + Reason(s.Reason-ledger.Unknown) }
