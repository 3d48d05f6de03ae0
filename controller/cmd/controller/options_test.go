package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string // part of the error; "" for none
	}{
		"defaults": {nil, ""},
		"all": {[]string{"--leader-elect=false", "--leader-elect-resource-namespace=x",
			"--metrics-bind-address=:1", "--health-probe-bind-address=0", "--claim-grace=1m", "--enable-brokers=false",
			"--enable-services=false", "--broker-scheduler-name=kubeslot-scheduler"}, ""},
		"no kubeconfig":       {[]string{"--kubeconfig=/no/such"}, "--kubeconfig"},
		"no rate":             {[]string{"--kube-api-qps=0"}, "--kube-api-qps"},
		"no limit":            {[]string{"--kube-api-qps=-1"}, ""},
		"less than no limit":  {[]string{"--kube-api-qps=-2"}, "--kube-api-qps"},
		"no burst":            {[]string{"--kube-api-burst=-1"}, "--kube-api-burst"},
		"no workers":          {[]string{"--concurrent-syncs=0"}, "--concurrent-syncs"},
		"no grace":            {[]string{"--claim-grace=-1s"}, "--claim-grace"},
		"bad scheduler":       {[]string{"--broker-scheduler-name=a b"}, "--broker-scheduler-name"},
		"a priority":          {[]string{"--broker-priority-class=kubeslot-broker"}, ""},
		"bad priority":        {[]string{"--broker-priority-class=a b"}, "--broker-priority-class"},
		"no namespace":        {[]string{"--leader-elect-resource-namespace="}, "--leader-elect-resource-namespace"},
		"bad namespace alone": {[]string{"--leader-elect-resource-namespace=X", "--leader-elect=false"}, ""},
		"lease too short":     {[]string{"--leader-elect-lease-duration=10s"}, "want each longer than the next"},
		"renewed too rarely":  {[]string{"--leader-elect-retry-period=9s"}, "want each longer than the next"},
		"no webhook":          {[]string{"--webhook-bind-address=0", "--checked-discovery-handlers=udev,onvif"}, ""},
		"no webhook's port":   {[]string{"--webhook-bind-address=:https"}, "--webhook-bind-address"},
		"webhook without":     {[]string{"--webhook-bind-address=127.0.0.1"}, "--webhook-bind-address"},
		"certificate ends":    {[]string{"--webhook-certificate-duration=59s"}, "--webhook-certificate-duration"},
		"no such handler":     {[]string{"--checked-discovery-handlers=udev,sonar"}, `--checked-discovery-handlers: there is no discovery handler "sonar"`},
		"no port":             {[]string{"--metrics-bind-address=localhost"}, "--metrics-bind-address"},
		"no port for probes":  {[]string{"--health-probe-bind-address=1"}, "--health-probe-bind-address"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{}
			groups := o.flags()
			for _, set := range groups.FlagSets {
				set.ParseErrorsAllowlist.UnknownFlags = true
				if err := set.Parse(tc.args); err != nil {
					t.Fatal(err)
				}
			}
			err := o.validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	o := &options{}
	o.flags()
	if !o.leaderElect || o.leaseNamespace != "kube-system" || o.claimGrace != 5*time.Second || o.qps != -1 {
		t.Errorf("defaults %+v", o)
	}
}

// --help names every flag in its group.
func TestHelp(t *testing.T) {
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Leader election flags", "--leader-elect-resource-namespace", "--metrics-bind-address", "--health-probe-bind-address",
		"--kubeconfig", "-v, --v", "--version", "system:kubeslot-controller"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("--help lacks %q", part)
		}
	}
}
