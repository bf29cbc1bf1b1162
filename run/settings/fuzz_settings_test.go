package settings

import "testing"

// FuzzSettings checks that any value of a setting is parsed or refused. Settings that name files are left out, because
// their effect depends on the machine.
func FuzzSettings(f *testing.F) {
	seeds := []string{"127.0.0.1:6443", "10.0.0.0/8,fd00::/64", "a=b:NoSchedule", "cpu=1,memory=1Gi",
		"0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=1Gi",
		"memory.available<100Mi", "memory.available=1m30s", "0=10", "full-pcpus-only=true", "corp.example.org=10.0.0.53",
		"https://[::1]:2379", "A=true"}
	for i := range All() {
		f.Add(byte(i), seeds[i%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, at byte, value string) {
		all := All()
		s := all[int(at)%len(all)]
		if s.isPath() || s.Name == "data-dir" {
			return
		}
		var once, twice Config
		if s.Set(&once, []string{value}) != nil {
			return
		}
		if err := s.Set(&twice, []string{value}); err != nil {
			t.Errorf("%s: %q is understood once, and then: %v", s.Name, value, err)
		}
	})
}
