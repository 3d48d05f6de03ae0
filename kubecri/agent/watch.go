package agent

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Indices that the agent adds to the informers it is given: a Configuration by
// its name and an Instance by its Configuration's, whatever their namespaces,
// because the resources that they become have none.
const (
	byName          = "kubecri/agent/name"
	byConfiguration = "kubecri/agent/configuration"
)

// watch makes every change of a Configuration or Instance queue its name.
func (a *Agent) watch() error {
	configurations, instances := a.config.Configurations.Informer(), a.config.Instances.Informer()
	if err := configurations.AddIndexers(cache.Indexers{byName: func(obj any) ([]string, error) {
		return []string{obj.(*v0.Configuration).Name}, nil
	}}); err != nil {
		return fmt.Errorf("index Configurations by name: %w", err)
	}
	if err := instances.AddIndexers(cache.Indexers{byConfiguration: func(obj any) ([]string, error) {
		return []string{obj.(*v0.Instance).Spec.ConfigurationName}, nil
	}}); err != nil {
		return fmt.Errorf("index Instances by Configuration: %w", err)
	}

	configurationsSynced, err := configurations.AddEventHandler(onChange(func(name types.NamespacedName) {
		a.configurations.Add(name.Name)
	}))
	if err != nil {
		return fmt.Errorf("watch Configurations: %w", err)
	}
	instancesSynced, err := instances.AddEventHandler(onChange(a.instances.Add))
	if err != nil {
		return fmt.Errorf("watch Instances: %w", err)
	}
	a.synced = []cache.InformerSynced{configurationsSynced.HasSynced, instancesSynced.HasSynced}
	return nil
}

func onChange(queue func(types.NamespacedName)) cache.ResourceEventHandler {
	handle := func(obj any) {
		// An informer's objects always have a name.
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			queue(types.NamespacedName{Namespace: name.Namespace, Name: name.Name})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    handle,
		UpdateFunc: func(_, obj any) { handle(obj) },
		DeleteFunc: handle,
	}
}

// configurationsNamed returns the Configurations of the name in all namespaces.
func (a *Agent) configurationsNamed(name string) ([]*v0.Configuration, error) {
	return indexed[v0.Configuration](a.config.Configurations.Informer().GetIndexer(), byName, name)
}

// instancesOf returns the Instances of all Configurations of the name.
func (a *Agent) instancesOf(configuration string) ([]*v0.Instance, error) {
	return indexed[v0.Instance](a.config.Instances.Informer().GetIndexer(), byConfiguration, configuration)
}

func indexed[T any](indexer cache.Indexer, index, value string) ([]*T, error) {
	objs, err := indexer.ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("look up %q in index %s: %w", value, index, err)
	}
	typed := make([]*T, 0, len(objs))
	for _, obj := range objs {
		typed = append(typed, obj.(*T))
	}
	return typed, nil
}
