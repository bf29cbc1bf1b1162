package settings

import "fmt"

// Validate refuses settings that contradict each other. Package run checks what needs the whole server.
func (c *Config) Validate() error {
	switch {
	case len(c.EtcdServers) == 0 && c.EtcdCAFile+c.EtcdCertFile+c.EtcdKeyFile != "":
		return fmt.Errorf("etcd-cafile, etcd-certfile and etcd-keyfile are for an external etcd; give its address with etcd-servers")
	case (c.EtcdCertFile == "") != (c.EtcdKeyFile == ""):
		return fmt.Errorf("etcd-certfile and etcd-keyfile belong together; give both or neither")
	case c.Reading+c.Writing < 1:
		return fmt.Errorf("max-requests-inflight and max-mutating-requests-inflight: one of them must be more than 0")
	case c.Nodes > 1 && len(c.Node.IPs) > 0:
		return fmt.Errorf("node-ip is for one node; several nodes of a machine have addresses on the link that they share")
	case c.Nodes > 1 && c.Node.ProviderID != "":
		return fmt.Errorf("provider-id is for one node; let the cloud's controllers say it")
	case c.Nodes > 1 && c.Node.Runtime != "":
		return fmt.Errorf("container-runtime-endpoint is for one node; several nodes of a machine have a runtime each")
	case c.AuditPolicy != "" && c.Audit == "" && c.AuditHook.Config == "":
		return fmt.Errorf("audit-policy-file needs audit-log-path or audit-webhook-config-file: say where the events go")
	}
	for _, check := range []func() error{c.checkIdentity, c.checkPermission, c.checkAudit, c.checkOTLP, c.checkIngress} {
		if err := check(); err != nil {
			return err
		}
	}
	return c.Admission.Validate()
}
