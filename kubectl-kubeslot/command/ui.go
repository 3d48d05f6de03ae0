package command

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui"
)

func (o *options) ui() *cobra.Command {
	var listen string
	var browser bool
	cmd := &cobra.Command{
		Use: "ui", Short: "A page on localhost: who holds which slot, live, and why pods wait",
		Long: `ui serves a page on this machine, until it is interrupted: devices and their slots
by node, who holds each, pods that wait and why, and what happened in the last hour.
The page only reads, with your own permissions. It is served on localhost alone, to whoever
has the key in the address that is printed, and loads nothing from elsewhere.`,
		Example: `  kubectl kubeslot ui --open                   # in your browser
  kubectl kubeslot ui --listen 127.0.0.1:8080  # always at the same port`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := o.source()
			if err != nil {
				return err
			}
			live, err := from.Watch(cmd.Context())
			if err != nil {
				return err
			}
			about, err := o.about()
			if err != nil {
				return err
			}
			page, err := ui.NewLocal(listen, about, ui.NewHub(live, clock.RealClock{}), from.Events)
			if err != nil {
				return err
			}
			fmt.Fprintf(o.streams.Out, "%s\n", page.Address())
			fmt.Fprintln(o.streams.ErrOut, "Open this address. It shows what you may see, until you press Ctrl-C.")
			if browser {
				if err := open(page.AddressOnce()); err != nil {
					fmt.Fprintf(o.streams.ErrOut, "Cannot open a browser: %v\n", err)
				}
			}
			return page.Serve(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address on this machine to serve the page at; port 0 is any that is free")
	cmd.Flags().BoolVar(&browser, "open", false, "open the page in your browser")
	return cmd
}

// about says which cluster is shown, by the kubeconfig's names.
func (o *options) about() (ui.About, error) {
	config, err := o.kube.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ui.About{}, err
	}
	namespace, err := o.namespace()
	if err != nil {
		return ui.About{}, err
	}
	name := config.CurrentContext
	if o.kube.Context != nil && *o.kube.Context != "" {
		name = *o.kube.Context
	}
	return ui.About{Cluster: name, Namespace: namespace}, nil
}

// open has the user's browser open an address.
func open(address string) error {
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.Command("open", address)
	case "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", address)
	default:
		cmd = exec.Command("xdg-open", address)
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("there is no %s: open the address yourself", cmd.Path)
		}
		return err
	}
	go cmd.Wait()
	return nil
}
