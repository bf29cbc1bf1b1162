package preflight

import "slices"

// module is a part of the kernel that may be built in, loadable or absent.
type module struct {
	title  string
	names  []string // of the modules; any of them will do
	option string   // in the kernel's configuration
	need   State    // the state of the row if it is absent
	lack   string   // what does not work then
}

type moduleState int

const (
	unknown moduleState = iota
	present
	loadable
	absent
)

// needed returns the parts of the kernel that the network of Pods needs.
func needed() []module {
	return []module{
		{"nftables", []string{"nf_tables"}, "CONFIG_NF_TABLES", Missing, "Services have no addresses"},
		{"nftables NAT", []string{"nft_nat", "nft_chain_nat", "nf_nat"}, "CONFIG_NFT_NAT", Missing, "Services lead nowhere"},
		{"conntrack", []string{"nf_conntrack"}, "CONFIG_NF_CONNTRACK", Missing, "Services lead nowhere"},
		{"veth", []string{"veth"}, "CONFIG_VETH", Missing, "Pods have no network"},
		{"bridge", []string{"bridge"}, "CONFIG_BRIDGE", Missing, "Pods have no network"},
		{"br_netfilter", []string{"br_netfilter"}, "CONFIG_BRIDGE_NETFILTER", Note,
			"a Pod does not reach a Service whose Pod is on the same node"},
		{"vxlan", []string{"vxlan"}, "CONFIG_VXLAN", Note, "Pods of different nodes reach each other only where the network between them routes Pod addresses"},
	}
}

// state determines whether a module is available, from what is loaded, what can be loaded, and how the kernel was
// built.
func (m module) state(f Facts) moduleState {
	has := func(list []string) bool {
		return slices.ContainsFunc(m.names, func(n string) bool { return slices.Contains(list, n) })
	}
	switch option, known := f.Options[m.option]; {
	case has(f.Loaded), option == "y":
		return present
	case has(f.Loadable):
		return loadable
	case option == "m" && len(f.Loadable) == 0:
		return absent // there is no folder of modules it could come from
	case known, len(f.Loadable) > 0, f.Options != nil:
		return absent
	}
	return unknown
}

func (m module) row(f Facts) Row {
	switch m.state(f) {
	case present:
		return ok(m.title, "")
	case loadable:
		return ok(m.title, "a module that is loaded when it is needed")
	case absent:
		return Row{Name: m.title, State: m.need, Finding: "not in this kernel: " + m.lack,
			Remedy: "use a kernel with " + m.option + ", and its modules installed"}
	default:
		return note(m.title, "it cannot be told whether the kernel has it", "make sure that the kernel has "+m.option)
	}
}
