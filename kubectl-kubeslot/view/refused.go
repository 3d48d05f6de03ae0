package view

// Refused is a workload whose pods the API server does not take, by a policy of Kubeslot's.
type Refused struct {
	Kind, Namespace, Name string
	// Why is what the policy says.
	Why string
}

// podsRefused is the reason of such a workload.
const podsRefused = "PodsRefused"

// refusedRows are the workloads among the pods: the pods that they want are not there.
func (v *View) refusedRows() []Pod {
	var rows []Pod
	for _, r := range v.objects.Refused {
		rows = append(rows, Pod{Namespace: r.Namespace, Name: r.Kind + "/" + r.Name, State: Wanted,
			Waits: []Wait{{Reason: podsRefused, Source: FromKubeslot, Why: r.Why, Needs: "correct its pod template"}}})
	}
	return rows
}

// examineRefused finds such workloads.
func (v *View) examineRefused(f *findings) {
	for _, r := range v.objects.Refused {
		f.add(r.Kind+"/"+r.Namespace+"/"+r.Name, podsRefused, "its pods are refused, so there are fewer than it wants: %s", r.Why)
	}
}
