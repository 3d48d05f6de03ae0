// Package requeue decides which waiting pods are tried again, and when. Both plugins
// use it, each with a Queue of its own.
//
// A Queue has the pods that wait, by what they wait for: a key, which is a resource or a
// node. The plugin reports events on keys: something was freed, or became preemptible.
// One goroutine (Run) answers them: it activates the pods that wait for the key in
// batches, by priority and then by age, for as long as what was freed is free for them or
// they can preempt for it. A batch follows when the last one has been tried. The first one is
// small and each next one twice as large: one freed slot must not send a thousand pods
// through the scheduler, and ten thousand pods take few batches.
//
// Pods are in line for their keys from a try until they are activated. Before, the framework has
// them in a queue of its own or holds them back, and tries them anyway: a scheduler that does not
// lead tries none, and does nothing here. Of a key the Queue knows the last event alone, and of a
// pod its last try: the event helps the pod if it is later. Some pods are tried in vain; none is
// missed.
//
// The framework's cluster events are not used for this: its informer handlers may run
// before the plugin's own, and then a pod would be tried too early, and never again.
package requeue
