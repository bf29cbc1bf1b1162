package servicetable

import (
	"net/netip"
	"os"
	"testing"

	"proa.dev/network/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

var (
	clusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
)
