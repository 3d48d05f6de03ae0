// Command outside is a program of somebody else's, which knows Kubeslot by its module of types
// alone: it applies a Configuration, and prints the slots of the pod that is its argument once
// the scheduler has assigned it some.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	kubeslot, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = kubeslot.AkriV0().Configurations(namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "outside"},
		Spec: akriv0.ConfigurationSpec{
			Capacity: 2,
			DiscoveryHandler: akriv0.DiscoveryHandlerInfo{
				Name:             "debugEcho",
				DiscoveryDetails: "descriptions: [outside]",
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var pod *corev1.Pod
	err = wait.PollUntilContextTimeout(
		ctx,
		100*time.Millisecond,
		4*time.Minute,
		true,
		func(ctx context.Context) (bool, error) {
			pod, err = kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil && pod.Spec.NodeName != "", err
		},
	)
	if err != nil {
		return fmt.Errorf("wait for pod %s/%s to be bound: %w", namespace, name, err)
	}
	granted, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if granted == nil {
		return fmt.Errorf("pod %s/%s has no assignment", namespace, name)
	}
	for container, info := range granted.RunningContainers {
		grants, err := assignment.Grants(&info)
		if err != nil {
			return err
		}
		for _, g := range grants {
			fmt.Println(container, g.Resource, g.Slot)
		}
	}
	return nil
}
