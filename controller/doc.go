// Package controller holds the parts of the cluster binary, a package a concern:
//
//	inventory       what nodes report and claim, by Instance, in memory
//	instances       writes Instances: the inventory as people and brokers see it
//	dra             publishes devices as ResourceSlices, for Configurations that have DRA give them
//	claims          deletes SlotClaims that are nobody's
//	brokers         runs the Pods and Jobs of Instances
//	brokerspec      reads the specs of brokers and Services, for those who check them and those who make them
//	services        makes the Services of Instances and Configurations
//	configurations  writes the status of Configurations
//	validation      what is wrong with a Configuration, and the webhook that says so in time
//	naming          names, labels and annotations of what is made, as Akri's
//	watch           feeds the inventory from the API server, and says what to look at
//
// Scheduler and kubecri read nothing that is written here: a controller that is down
// delays the view, brokers, and the deletion of what a node that is gone has left.
package controller
