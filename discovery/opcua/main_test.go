package opcua

import (
	"testing"

	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

func TestMain(m *testing.M) { lan.Main(m) }
