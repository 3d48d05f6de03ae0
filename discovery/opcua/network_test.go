package opcua

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/test/await"
)

// What a discovery server knows from its network is asked itself.
func TestServersOnNetwork(t *testing.T) {
	oven, other := serve(t), serve(t, description("Client", ua.ApplicationTypeClient))
	oven.set(func() { oven.applications = []*ua.ApplicationDescription{plc(oven.url)} })
	lds := serve(t)
	lds.set(func() {
		lds.applications = []*ua.ApplicationDescription{description("LDS", ua.ApplicationTypeDiscoveryServer, lds.url)}
		for i := range uint32(recordsAtOnce + 10) { // two pages
			lds.network = append(lds.network, &ua.ServerOnNetwork{RecordID: 2*i + 1, ServerName: "itself",
				DiscoveryURL: lds.url, ServerCapabilities: []string{"LDS"}})
		}
		lds.network = append(lds.network,
			&ua.ServerOnNetwork{RecordID: 1000, DiscoveryURL: oven.url, ServerCapabilities: []string{"DA"}},
			&ua.ServerOnNetwork{RecordID: 1001, DiscoveryURL: other.url},
			&ua.ServerOnNetwork{RecordID: 1002, DiscoveryURL: "https://192.0.2.1/"})
	})
	d := discover(t, &Handler{},
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+", "+other.url+"]}}")
	d.wants("the server on the network", oven.url)
	if len(d.reports) != 1 {
		t.Errorf("%d reports, want one with all: %v", len(d.reports), d.reports)
	}
	d.warns("has no FindServersOnNetwork", other.url)
	lds.set(func() { lds.network = lds.network[:1] })
	d.wants("none")
	// Without the key, it is asked no more than Akri asks.
	discover(t, &Handler{}, urls(lds.url)).wants("none")
}

// A discovery server that names other servers each time, who do not answer, keeps nothing
// from being reported.
func TestServersOnNetworkThatChangeAllTheTime(t *testing.T) {
	s, nobody := serve(t, plc("opc.tcp://192.0.2.1:4840/")), silent(t)
	lds := serve(t)
	lds.set(func() {
		lds.name = func(n int) []*ua.ServerOnNetwork {
			return []*ua.ServerOnNetwork{{RecordID: 1, DiscoveryURL: fmt.Sprintf("%s%d", nobody.url, n)}}
		}
	})
	h := &Handler{askTimeout: time.Hour, firstReport: 200 * time.Millisecond}
	d := discover(t, h,
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+", "+s.url+"]}}")
	d.wants("the server that is listed", "opc.tcp://192.0.2.1:4840/")
}

// Servers that nobody listed lead to few devices each, and may answer with little.
func TestServersOnNetworkAreBounded(t *testing.T) {
	many, long := serve(t), serve(t)
	many.set(func() {
		for i := range 2 * maxServersOfLearned {
			many.applications = append(many.applications, plc(fmt.Sprintf("opc.tcp://192.0.2.%d/", i)))
		}
	})
	long.set(func() {
		long.applications = []*ua.ApplicationDescription{plc(long.url)}
		long.applications[0].ApplicationName.Text = strings.Repeat("x", maxAnswerOfLearned)
	})
	lds := serve(t)
	lds.set(func() {
		lds.network = []*ua.ServerOnNetwork{
			{RecordID: 1, DiscoveryURL: many.url}, {RecordID: 2, DiscoveryURL: long.url}}
	})
	d := discover(t, &Handler{},
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+"]}}")
	d.warns(many.url+" names more than 10 servers", "left out")
	d.warns("no OPC UA server at "+long.url, "an answer of more than 16384 bytes")
	d.await("ten devices", func() bool {
		return len(d.reports) > 0 && len(d.reports[len(d.reports)-1].Devices) == maxServersOfLearned
	})
}

// Servers that somebody on the network made up, each of which takes its time, delay no URL that
// is listed.
func TestServersOnNetworkDelayNoListedURL(t *testing.T) {
	s, nobody, lds := serve(t, plc("opc.tcp://192.0.2.1:4840/")), silent(t), serve(t)
	lds.set(func() { lds.network = []*ua.ServerOnNetwork{} })
	d := discover(t, &Handler{askTimeout: time.Hour, firstReport: time.Millisecond},
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+", "+s.url+"]}}")
	d.wants("the server that is listed", "opc.tcp://192.0.2.1:4840/")
	lds.set(func() {
		for i := range uint32(2 * asksAtOnce) {
			lds.network = append(lds.network,
				&ua.ServerOnNetwork{RecordID: i, DiscoveryURL: fmt.Sprintf("%s%d", nobody.url, i)})
		}
	})
	await.That(t, "as many questions as there may be", func() (all bool) {
		nobody.set(func() { all = nobody.asked == asksAtOnce })
		return all
	})
	s.set(func() { s.applications = append(s.applications, plc("opc.tcp://192.0.2.2:4840/")) })
	d.wants("another server", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
}
