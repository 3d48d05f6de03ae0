// Package history checks whether slots were given out correctly: none had two live
// holders at a time, and none was lost or leaked at the end. It decides from every event
// that the API has shown, in order, of Pods, Configurations, DeviceSlices and SlotClaims.
//
//   - check.go: the rules, a pure function of a history (see Check)
//   - slots.go: what is known of pods and slots while a history is replayed
//   - record.go, etcd.go: recording a history from the API, or from its storage where API servers are killed
//   - inside.go: what containers have found in themselves, against their assignments
package history
