package configurationresources

import akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

// trim drops from an Instance, before the informer keeps it, what no decision
// needs: there may be tens of thousands. What is left is not for writing back as a
// whole; claims are written by patches.
func trim(obj any) (any, error) {
	in, ok := obj.(*akriv0.Instance)
	if !ok {
		return obj, nil // a tombstone, whose object was trimmed before
	}
	in.ManagedFields, in.OwnerReferences, in.Labels, in.Annotations = nil, nil, nil, nil
	in.Spec.BrokerProperties, in.Spec.CDIName = nil, ""
	return in, nil
}
