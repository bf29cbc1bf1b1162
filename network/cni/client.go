package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// The limits on the size of messages over the socket, and the timeout.
const (
	maxMessage = 1 << 20
	patience   = 2 * time.Minute
)

// Main is the CNI program that a runtime starts. It returns the exit code.
func Main(getenv func(string) string, stdin io.Reader, stdout io.Writer) int {
	req := Request{
		Command: getenv("CNI_COMMAND"), ContainerID: getenv("CNI_CONTAINERID"), NetNS: getenv("CNI_NETNS"),
		IfName: getenv("CNI_IFNAME"), Args: getenv("CNI_ARGS"),
	}
	version := Current
	out, err := run(req, stdin, &version)
	if err != nil {
		e := *asError(err)
		e.CNIVersion = version
		out, err = json.Marshal(e)
		if err == nil {
			_, _ = stdout.Write(append(out, '\n'))
		}
		return 1
	}
	if len(out) > 0 {
		if _, err := stdout.Write(append(out, '\n')); err != nil {
			return 1
		}
	}
	return 0
}

// run reads the configuration and answers what needs no agent; other requests go to the agent.
func run(req Request, stdin io.Reader, version *string) (json.RawMessage, error) {
	if req.Command == "" {
		return nil, Errorf(InvalidEnvironment, "CNI_COMMAND is not set: a container runtime starts this program, not a person")
	}
	raw, err := io.ReadAll(io.LimitReader(stdin, maxMessage))
	if err != nil {
		return nil, Errorf(IOFailure, "read the network configuration: %v", err)
	}
	if req.Command == Version {
		return versions(raw)
	}
	conf, err := ParseConfig(raw)
	if err != nil {
		return nil, err
	}
	*version, req.Config = conf.CNIVersion, raw
	if err := req.check(); err != nil {
		return nil, err
	}
	if conf.Type == "loopback" {
		return loopback(req, conf)
	}
	if conf.Socket == "" {
		return nil, Errorf(InvalidConfig, "the configuration %q names no socket of an agent", conf.Name)
	}
	return ask(conf.Socket, req)
}

// check refuses requests that are invalid for their command.
func (r *Request) check() error {
	missing := func(name, value string) error {
		if value == "" {
			return Errorf(InvalidEnvironment, "required env variables [%s] missing", name)
		}
		return nil
	}
	switch r.Command {
	case Add, Check:
		return errors.Join(missing("CNI_CONTAINERID", r.ContainerID), missing("CNI_NETNS", r.NetNS), missing("CNI_IFNAME", r.IfName))
	case Del:
		return errors.Join(missing("CNI_CONTAINERID", r.ContainerID), missing("CNI_IFNAME", r.IfName))
	case GC, Status:
		return nil
	}
	return Errorf(InvalidEnvironment, "unknown CNI_COMMAND: %v", r.Command)
}

// versions answers VERSION in the version of the request.
func versions(raw []byte) (json.RawMessage, error) {
	c := Config{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, &Error{Code: DecodeFailure, Msg: "the network configuration is not JSON of the expected shape",
				Details: err.Error()}
		}
	}
	if !slices.Contains(Versions(), c.CNIVersion) {
		c.CNIVersion = Current
	}
	return json.Marshal(struct {
		CNIVersion string   `json:"cniVersion"`
		Supported  []string `json:"supportedVersions"`
	}{c.CNIVersion, Versions()})
}

// ask sends the request and the network namespace to the agent. The namespace is passed as an open file, because its
// path may not exist for the agent, which can have other mounts than the runtime.
func ask(socket string, req Request) (json.RawMessage, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil && req.Command == Del {
		// A sandbox may be deleted while the agent is down. Its interface is removed with the namespace, and the agent
		// frees the addresses of deleted sandboxes when it is back.
		return nil, nil
	}
	if err != nil {
		code := uint(TryAgainLater)
		if req.Command == Status {
			code = NotAvailable
		}
		return nil, Errorf(code, "the node's agent does not answer at %s; is it running? (%v)", socket, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var rights []byte
	if req.NetNS != "" {
		ns, err := os.Open(req.NetNS)
		switch {
		case err == nil:
			defer ns.Close()
			rights = syscall.UnixRights(int(ns.Fd()))
		case req.Command != Del:
			return nil, Errorf(UnknownContainer, "open the network namespace: %v", err)
		}
	}
	msg, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	// The first byte carries the file descriptor; JSON follows.
	if _, _, err = conn.WriteMsgUnix([]byte{'\n'}, rights, nil); err == nil {
		_, err = conn.Write(msg)
	}
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		return nil, Errorf(TryAgainLater, "send the request to the node's agent: %v", err)
	}
	return read(conn)
}

func read(conn io.Reader) (json.RawMessage, error) {
	raw, err := io.ReadAll(io.LimitReader(conn, maxMessage))
	if err != nil {
		return nil, Errorf(TryAgainLater, "read the answer of the node's agent: %v", err)
	}
	var a answer
	if len(raw) == 0 || json.Unmarshal(raw, &a) != nil {
		return nil, Errorf(TryAgainLater, "the node's agent ended without an answer; it is probably starting again")
	}
	if a.Error == nil {
		return a.Result, nil
	}
	if a.Error.Msg == "" {
		a.Error.Msg = "the node's agent does not say why it refuses"
	}
	return nil, a.Error
}

// loopback answers for the plugin of that name, which runtimes start for every sandbox: the Pod network brings lo up
// itself, so there is nothing to do.
func loopback(req Request, conf *Config) (json.RawMessage, error) {
	if req.Command != Add {
		return nil, nil
	}
	if len(conf.PrevResult) > 0 {
		return conf.PrevResult, nil
	}
	r := Result{Interfaces: []Interface{{Name: "lo", MAC: "00:00:00:00:00:00", Sandbox: req.NetNS}}}
	return r.Encode(conf.CNIVersion)
}
