// Package message knows what the scheduler and the kubelet say of a pod that does not
// run: it takes their texts apart, and says what each reason means and what would let
// the pod run. It is a table of texts (scheduler.go, kubelet.go) and a pure function of
// them; its tests read the texts from the sources of the scheduler, the kubelet and
// kubecri, so that none is missing.
package message
