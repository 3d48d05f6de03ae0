package resource

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/types"
)

// TranslateResource lifts a container's requests one level of the hierarchy, so
// that a request that names no thisStage group fits a node that has them:
//
//	resource/group/gpu/0/cards                     asked for
//	resource/group/gpugrp0/0/gpu/0/cards           after stage gpugrp0 over gpu
//	resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards after stage gpugrp1 over gpugrp0
//
// Every nextStage index gets a thisStage group of its own: nothing asked for
// them to be together. Groups are numbered in the order of the sorted requests,
// from one above the highest number that the requests already use, so that what
// the author did group stays as it is. Translating again changes nothing.
//
// It returns whether it changed anything, and the requests: those given when
// the node has no such level, else a copy.
func TranslateResource(nodeResources, containerRequests types.ResourceList, thisStage, nextStage string) (bool, types.ResourceList) {
	inNode := false
	for name := range nodeResources {
		if _, inNode = stageIndex(string(name), thisStage, nextStage); inNode {
			break
		}
	}
	if !inNode {
		return false, containerRequests
	}

	next := 0
	for name := range containerRequests {
		index, ok := stageIndex(string(name), thisStage, nextStage)
		if !ok {
			continue
		}
		// A higher number is only a name: counting on from it could overflow.
		if n, err := strconv.Atoi(index); err == nil && n < math.MaxInt32 {
			next = max(next, n+1)
		}
	}

	translated := make(types.ResourceList, len(containerRequests))
	groups := map[string]string{}
	modified := false
	for _, name := range slices.Sorted(maps.Keys(containerRequests)) {
		to := name
		if _, ok := stageIndex(string(name), thisStage, nextStage); !ok {
			if parent, index, rest, ok := cutStage(string(name), nextStage); ok {
				group, known := groups[index]
				if !known {
					group = strconv.Itoa(next)
					groups[index] = group
					next++
				}
				to = types.ResourceName(parent + thisStage + "/" + group + "/" + nextStage + "/" + index + "/" + rest)
				modified = true
			}
		}
		// Two requests meet only in contrived names; neither is dropped then.
		translated[to] += containerRequests[name]
	}
	return modified, translated
}

// stageIndex returns what stands between "/<this>/" and the next "/<next>",
// taking the innermost such pair. As in KubeDevice, next may be the beginning
// of a longer name.
func stageIndex(name, this, next string) (string, bool) {
	last := strings.LastIndex(name, "/"+next)
	if last < 0 {
		return "", false
	}
	open := "/" + this + "/"
	at := strings.LastIndex(name[:last], open)
	if at < 0 {
		return "", false
	}
	index, _, ok := strings.Cut(name[at+len(open):], "/"+next)
	return index, ok
}

// cutStage splits a name around its first group of the stage:
// "<parent>/<stage>/<index>/<rest>", where parent keeps its slash.
func cutStage(name, stage string) (parent, index, rest string, ok bool) {
	at := strings.Index(name, "/"+stage+"/")
	if at < 0 {
		return "", "", "", false
	}
	parent, tail := name[:at+1], name[at+len(stage)+2:]
	index, rest, ok = strings.Cut(tail, "/")
	return parent, index, rest, ok
}
