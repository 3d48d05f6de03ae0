// Package assignment reads and writes the KubeDevice/DeviceInfo annotation: on
// a pod, what its author asks of devices and the slots that the scheduler chose
// (its assignment); on a node, what the node's plugins advertise.
package assignment

import (
	"encoding/json"
	"fmt"

	"github.com/kubeslot/kubeslot/types"
)

const (
	// Annotation holds the JSON of types.PodInfo on a pod: what its author asks of devices, and
	// the slots and devices that the scheduler chose. On a node it is that of types.NodeInfo: what the
	// node's plugins advertise. Key and fields are KubeDevice's.
	//
	// Annotation of Pods and Nodes. Written by kube-scheduler with the Binding, a pod's author for what is
	// asked, kubecri on its Node. Read by kube-scheduler, kubecri, kubectl-kubeslot.
	Annotation = "KubeDevice/DeviceInfo"

	// HolderAnnotation holds the UID of the pod that the assignment was made
	// for. The scheduler writes it with the assignment, in the Binding. A pod's
	// author cannot know the UID before the API server has made the pod, so an
	// assignment without it was not made by the scheduler and grants nothing. That
	// others do not write it afterwards is up to deploy/policies/assignment.yaml.
	//
	// Annotation of Pods. Written by kube-scheduler with the Binding. Read by kubecri, kubectl-kubeslot.
	HolderAnnotation = "kubeslot.io/holder"

	// SignatureAnnotation holds `<id of the key>.<signature>` where schedulers sign
	// assignments (package signing). It is at most 128 bytes long.
	//
	// Annotation of Pods. Written by kube-scheduler with --assignment-signing-key-file. Read by kubecri with
	// --assignment-public-keys-file.
	SignatureAnnotation = "kubeslot.io/signature"
	maxSignature        = 128

	// MaxBytes is the API server's limit for all annotations of an object
	// (apimachinery validation, TotalAnnotationSizeLimitB). It is not checked at
	// Bind, so that a larger one would break every later update of the pod.
	MaxBytes = 256 << 10
)

// DecodePod reads the pod annotation. It returns nil when there is none. What
// the author may not write is still in the result: see Input and Granted.
func DecodePod(annotations map[string]string) (*types.PodInfo, error) {
	text, ok := annotations[Annotation]
	if !ok {
		return nil, nil
	}
	info := &types.PodInfo{}
	if err := json.Unmarshal([]byte(text), info); err != nil {
		return nil, fmt.Errorf("annotation %s is not the JSON of a PodInfo: %w", Annotation, unreadable(text, err))
	}
	return info, nil
}

// Input reads the part of the pod annotation that its author may write: requests and
// scorers. It is empty, and not nil, when there is none. It is an error to request a
// negative count, to write a key that nobody reads, and to misspell Annotation itself.
func Input(annotations map[string]string) (*types.PodInfo, error) {
	info, err := DecodePod(annotations)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return &types.PodInfo{}, checkMisspelt(annotations)
	}
	if err := checkKeys(annotations[Annotation]); err != nil {
		return nil, err
	}
	in := &types.PodInfo{Requests: info.Requests}
	if err := checkCounts("", info.Requests); err != nil {
		return nil, err
	}
	if in.InitContainers, err = inputContainers(info.InitContainers); err != nil {
		return nil, err
	}
	if in.RunningContainers, err = inputContainers(info.RunningContainers); err != nil {
		return nil, err
	}
	return in, nil
}

func inputContainers(from map[string]types.ContainerInfo) (map[string]types.ContainerInfo, error) {
	if len(from) == 0 {
		return nil, nil
	}
	to := make(map[string]types.ContainerInfo, len(from))
	for name, c := range from {
		if err := checkCounts(name, c.Requests); err != nil {
			return nil, err
		}
		to[name] = types.ContainerInfo{Requests: c.Requests, Scorer: c.Scorer}
	}
	return to, nil
}

func checkCounts(container string, requests types.ResourceList) error {
	for name, n := range requests {
		if n < 0 {
			return fmt.Errorf("annotation %s: container %q requests %d of %q: a count cannot be negative",
				Annotation, container, n, name)
		}
	}
	return nil
}

// Encode writes the two annotations of an assignment made for the pod with the
// UID, to be merged with the annotations that it has. Equal infos give equal text.
func Encode(info *types.PodInfo, podUID string, has map[string]string) (map[string]string, error) {
	text, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("encode the assignment of pod %s: %w", info.Name, err)
	}
	made := map[string]string{Annotation: string(text), HolderAnnotation: podUID}
	if total := Size(made, has); total > MaxBytes {
		return nil, fmt.Errorf("with its device assignment of %d bytes the annotations of pod %s would take %d bytes, of %d allowed: request fewer slots in one pod, or shorten its annotations",
			len(text), info.Name, total, MaxBytes)
	}
	return made, nil
}

// Size is how many bytes the annotations of a pod take that has some, once those that are made for
// it are merged with them. Room for a signature is counted whether or not they are signed.
func Size(made, has map[string]string) int {
	total := len(SignatureAnnotation) + maxSignature
	for key, value := range made {
		total += len(key) + len(value)
	}
	for key, value := range has {
		if _, replaced := made[key]; !replaced && key != SignatureAnnotation {
			total += len(key) + len(value)
		}
	}
	return total
}

// Granted returns the assignment that the scheduler made for this pod on this
// node, or nil when it made none: no annotation, or one written by somebody else.
func Granted(annotations map[string]string, podUID, node string) (*types.PodInfo, error) {
	if podUID == "" || annotations[HolderAnnotation] != podUID {
		return nil, nil
	}
	info, err := DecodePod(annotations)
	if err != nil || info == nil {
		return nil, err
	}
	if info.NodeName != node {
		return nil, fmt.Errorf("annotation %s assigns devices on node %q, but the pod is on node %q",
			Annotation, info.NodeName, node)
	}
	return info, nil
}

// DecodeNode reads the node annotation. It returns nil when there is none.
func DecodeNode(annotations map[string]string) (*types.NodeInfo, error) {
	text, ok := annotations[Annotation]
	if !ok {
		return nil, nil
	}
	info := &types.NodeInfo{}
	if err := json.Unmarshal([]byte(text), info); err != nil {
		return nil, fmt.Errorf("node annotation %s is not the JSON of a NodeInfo: %w", Annotation, err)
	}
	return info, nil
}

// EncodeNode writes the node annotation's value. Equal infos give equal text.
func EncodeNode(info *types.NodeInfo) (string, error) {
	text, err := json.Marshal(info)
	if err != nil {
		return "", fmt.Errorf("encode the NodeInfo of node %s: %w", info.Name, err)
	}
	return string(text), nil
}
