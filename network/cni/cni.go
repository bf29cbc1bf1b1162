// Package cni connects container runtimes with the Pod network: the types of the Container Network Interface
// (specification 1.1.0), the CNI program that runtimes start for every Pod, and the server in the agent that handles
// its requests.
//
// The program does no work. It reads the request of the runtime, opens the network namespace, sends both over a unix
// socket to the agent and prints the answer. That keeps the program small, which matters because it is started for
// every Pod, and lets the agent keep sockets, addresses and rules ready.
package cni

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// The commands of the specification.
const (
	Add     = "ADD"
	Del     = "DEL"
	Check   = "CHECK"
	GC      = "GC"
	Status  = "STATUS"
	Version = "VERSION"
)

// Current is the version of the specification that is used by default.
const Current = "1.1.0"

// Versions returns the versions that results can be encoded in, oldest first.
func Versions() []string { return []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", Current} }

// Request is a request of a runtime: the environment of the program, and the configuration.
type Request struct {
	Command     string          `json:"command"`
	ContainerID string          `json:"containerID,omitempty"`
	NetNS       string          `json:"netns,omitempty"`
	IfName      string          `json:"ifName,omitempty"`
	Args        string          `json:"args,omitempty"`
	Config      json.RawMessage `json:"config"`
}

// answer is the response over the socket: a result or an error.
type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Config is the part of a network configuration that is used here.
type Config struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Type       string `json:"type"`
	Socket     string `json:"socket"`

	RuntimeConfig struct {
		PortMappings []PortMapping `json:"portMappings"`
		Bandwidth    *Bandwidth    `json:"bandwidth"`
	} `json:"runtimeConfig"`

	PrevResult json.RawMessage `json:"prevResult"`
	// Valid are the attachments that stay; GC removes all others.
	Valid []Attachment `json:"cni.dev/valid-attachments"`
}

// Attachment names one interface of one container.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// PortMapping is a host port that is forwarded to a port of the container.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// Bandwidth limits the traffic of a container: rates in bits per second, bursts in bits.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate"`
	IngressBurst uint64 `json:"ingressBurst"`
	EgressRate   uint64 `json:"egressRate"`
	EgressBurst  uint64 `json:"egressBurst"`
}

// Result is the result of ADD.
type Result struct {
	Interfaces []Interface
	Addresses  []Address
	Routes     []Route
}

// Interface is an interface that was created; Sandbox is empty for those of the node.
type Interface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
}

// Address is an address of an interface, which is given by its index in the list.
type Address struct {
	Address   netip.Prefix
	Gateway   netip.Addr
	Interface int
}

// Route is a route in the container.
type Route struct {
	Dst netip.Prefix
	GW  netip.Addr
}

type wireAddress struct {
	Version   string       `json:"version,omitempty"`
	Address   netip.Prefix `json:"address"`
	Gateway   *netip.Addr  `json:"gateway,omitempty"`
	Interface *int         `json:"interface,omitempty"`
}

type wireRoute struct {
	Dst netip.Prefix `json:"dst"`
	GW  *netip.Addr  `json:"gw,omitempty"`
}

type wireResult struct {
	CNIVersion string        `json:"cniVersion"`
	Interfaces []Interface   `json:"interfaces,omitempty"`
	IPs        []wireAddress `json:"ips,omitempty"`
	Routes     []wireRoute   `json:"routes,omitempty"`
	DNS        struct{}      `json:"dns"`
}

// Encode encodes the result in a version of the specification. Before 1.0 an address has a version field, before 1.1 an
// interface has no MTU.
func (r *Result) Encode(version string) (json.RawMessage, error) {
	out := wireResult{CNIVersion: version, Interfaces: slices.Clone(r.Interfaces)}
	if version != Current {
		for i := range out.Interfaces {
			out.Interfaces[i].MTU = 0
		}
	}
	for _, a := range r.Addresses {
		w := wireAddress{Address: a.Address, Interface: new(a.Interface)}
		if a.Gateway.IsValid() {
			w.Gateway = new(a.Gateway)
		}
		if old(version) {
			w.Version = "4"
			if a.Address.Addr().Is6() {
				w.Version = "6"
			}
		}
		out.IPs = append(out.IPs, w)
	}
	for _, route := range r.Routes {
		w := wireRoute{Dst: route.Dst}
		if route.GW.IsValid() {
			w.GW = new(route.GW)
		}
		out.Routes = append(out.Routes, w)
	}
	return json.Marshal(out)
}

func old(version string) bool { return len(version) > 1 && version[:2] == "0." }

// ParseConfig parses a configuration and refuses unknown versions.
func ParseConfig(raw []byte) (*Config, error) {
	c := &Config{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, &Error{Code: DecodeFailure, Msg: "the network configuration is not JSON of the expected shape", Details: err.Error()}
	}
	if c.CNIVersion == "" {
		c.CNIVersion = "0.3.0" // the default of the first versions of the specification
	}
	if !slices.Contains(Versions(), c.CNIVersion) {
		return nil, Errorf(IncompatibleVersion, "cniVersion %q is not one of %q", c.CNIVersion, Versions())
	}
	return c, nil
}
