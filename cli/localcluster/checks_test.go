package localcluster

import "testing"

func TestParseChecks(t *testing.T) {
	got := ParseChecks([]byte("[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"))
	if len(got) != 2 || !got[0].OK || got[1].OK || got[1].Name != "etcd" || got[1].Text != "failed: reason withheld" {
		t.Errorf("got %+v", got)
	}
}
