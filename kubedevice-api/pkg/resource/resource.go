// Package resource is KubeDevice-API's pkg/resource: Kubeslot's types/resource.
package resource

import (
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// InsufficientResourceError is resource.InsufficientResourceError.
type InsufficientResourceError = resource.InsufficientResourceError

// NewInsufficientResourceError is resource.NewInsufficientResourceError.
func NewInsufficientResourceError(resourceName types.ResourceName, requested, used, capacity int64) *InsufficientResourceError {
	return resource.NewInsufficientResourceError(resourceName, requested, used, capacity)
}

// IsGroupResourceName is resource.IsGroupResourceName.
func IsGroupResourceName(name types.ResourceName) bool { return resource.IsGroupResourceName(name) }

// IsEnumResource is resource.IsEnumResource.
func IsEnumResource(res types.ResourceName) bool { return resource.IsEnumResource(res) }

// PrecheckedResource is resource.PrecheckedResource.
func PrecheckedResource(constraint types.ResourceName) bool {
	return resource.PrecheckedResource(constraint)
}

// AddGroupResource is types.AddGroupResource.
func AddGroupResource(list types.ResourceList, key string, val int64) {
	types.AddGroupResource(list, key, val)
}

// TranslateResource is resource.TranslateResource.
func TranslateResource(nodeResources types.ResourceList, containerRequests types.ResourceList,
	thisStage string, nextStage string) (bool, types.ResourceList) {
	return resource.TranslateResource(nodeResources, containerRequests, thisStage, nextStage)
}
