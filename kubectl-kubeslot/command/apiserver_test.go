package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// apiServer stands in for an API server, to count what commands ask of it and what it answers: it lists and gets
// objects by namespace, pages, field and label selectors, as JSON or protobuf, whole or as metadata. It does not
// compress, watch, or know permissions.
type apiServer struct {
	*httptest.Server
	collections     map[string]collection // by group/resource
	requests, bytes atomic.Int64
}

// collection is the objects of one kind.
type collection struct {
	apiVersion, kind string
	list             runtime.Object // an empty one of its type
	items            []runtime.Object
}

func newAPIServer(t testing.TB, collections map[string]collection) *apiServer {
	s := &apiServer{collections: collections}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	group, namespace, resource, name := requested(r.URL.Path)
	of, known := s.collections[group+"/"+resource]
	if !known {
		s.requests.Add(1)
		http.NotFound(w, r)
		return
	}
	if name != "" {
		for _, o := range of.items {
			if m, _ := meta.Accessor(o); m.GetName() == name && m.GetNamespace() == namespace {
				s.answer(w, r, of.apiVersion, of.kind, o.DeepCopyObject())
				return
			}
		}
		s.requests.Add(1)
		http.NotFound(w, r)
		return
	}
	items, next, err := of.page(r, namespace)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: next}}
		for _, o := range items {
			m, _ := meta.Accessor(o)
			list.Items = append(list.Items, *meta.AsPartialObjectMetadata(m))
		}
		s.answer(w, r, "meta.k8s.io/v1", "PartialObjectMetadataList", list)
		return
	}
	list := of.list.DeepCopyObject()
	if err := meta.SetList(list, items); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	listed, _ := meta.ListAccessor(list)
	listed.SetContinue(next)
	s.answer(w, r, of.apiVersion, of.kind+"List", list)
}

// requested reads a path of the API.
func requested(path string) (group, namespace, resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "apis" && len(parts) > 1 {
		group, parts = parts[1], parts[1:]
	}
	if parts = parts[min(2, len(parts)):]; len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	return group, namespace, parts[0], parts[1]
}

// page is what a request asks for of the collection, and where to go on.
func (c *collection) page(r *http.Request, namespace string) (items []runtime.Object, next string, err error) {
	query := r.URL.Query()
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, "", err
	}
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, "", err
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	for i := from; i < len(c.items); i++ {
		m, _ := meta.Accessor(c.items[i])
		set := fields.Set{}
		if pod, ok := c.items[i].(*corev1.Pod); ok {
			set = fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase)}
		} else if !byField.Empty() {
			continue // events, of which there are none
		}
		if namespace != "" && m.GetNamespace() != namespace || !byField.Matches(set) ||
			!byLabel.Matches(labels.Set(m.GetLabels())) {
			continue
		}
		if limit > 0 && len(items) == limit {
			return items, strconv.Itoa(i), nil
		}
		items = append(items, c.items[i])
	}
	return items, "", nil
}

// answer writes the object as the request accepts it.
func (s *apiServer) answer(w http.ResponseWriter, r *http.Request, apiVersion, kind string, o runtime.Object) {
	gv, _ := schema.ParseGroupVersion(apiVersion)
	o.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
	var text bytes.Buffer
	var err error
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &text)
	} else {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		err = json.NewEncoder(&text).Encode(o)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("%s: %v", r.URL, err), http.StatusInternalServerError)
		return
	}
	s.requests.Add(1)
	s.bytes.Add(int64(text.Len()))
	_, _ = w.Write(text.Bytes())
}

// objects are the values as the server has them.
func objects[T any, P interface {
	*T
	runtime.Object
}](values []T) []runtime.Object {
	all := make([]runtime.Object, len(values))
	for i := range values {
		all[i] = P(&values[i])
	}
	return slices.Clip(all)
}
