package main

import "testing"

// Whoever can connect over the network must not read without being asked who he is.
func TestMetricsOffTheLoopbackAreSecured(t *testing.T) {
	for address, secured := range map[string]bool{
		"127.0.0.1:10360": false, "localhost:10360": false, "[::1]:1": false, "0": false,
		":10360": true, "0.0.0.0:10360": true, "10.1.2.3:10360": true,
	} {
		o := metricsOptions(address)
		if o.SecureServing != secured || (o.FilterProvider != nil) != secured || o.BindAddress != address {
			t.Errorf("%s: secure serving %v, filter %v, address %s", address, o.SecureServing, o.FilterProvider != nil, o.BindAddress)
		}
	}
}
