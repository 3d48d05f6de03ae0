package serve

import "testing"

// The fingerprint is written as browsers and openssl write it, to be compared.
func TestFingerprint(t *testing.T) {
	const want = "E3:B0:C4:42:98:FC:1C:14:9A:FB:F4:C8:99:6F:B9:24:27:AE:41:E4:64:9B:93:4C:A4:95:99:1B:78:52:B8:55" // of nothing
	if got := fingerprint(nil); got != want {
		t.Errorf("fingerprint(nil) = %s, want %s", got, want)
	}
}
