package slotcache

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkSetNamespace is one namespace at the start, when no pod was tried yet, and one that is made
// later, while so many pods wait for Configurations that all namespaces may use.
func BenchmarkSetNamespace(b *testing.B) {
	for _, tried := range []bool{false, true} {
		b.Run(fmt.Sprintf("tried=%v", tried), func(b *testing.B) {
			const pods = 100_000
			c := waitingCache(pods)
			for i := range pods {
				if tried {
					c.Queue.Try(types.UID(fmt.Sprint("p", i)))
				}
			}
			for b.Loop() {
				c.SetNamespace(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
			}
		})
	}
}
