// Command program is of two modules of the repository.
package main

import "github.com/kubeslot/kubeslot/types/slot"

func main() { println(slot.InstanceName("a", "b")) }
