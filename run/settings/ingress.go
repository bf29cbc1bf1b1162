package settings

import "fmt"

// IngressConfig configures how Ingresses and Gateways are served. Servers that have a node serve them.
type IngressConfig struct {
	// Class is the name of the IngressClass; empty serves none.
	Class string
	// HTTPPort and HTTPSPort are open while an Ingress or a Gateway needs them; 0 for never.
	HTTPPort, HTTPSPort int
	// GatewayClass is the name of the GatewayClass that is created when the definitions of the Gateway API are
	// installed; empty serves no Gateways.
	GatewayClass string
}

func defaultIngress() IngressConfig {
	return IngressConfig{Class: "proa", HTTPPort: 80, HTTPSPort: 443, GatewayClass: "proa"}
}

// ingressSettings returns the settings about Ingresses and Gateways.
func ingressSettings() []Setting {
	return append([]Setting{
		{Name: "ingress-class", Help: "serve Ingresses of the IngressClass `NAME`, which is created and is the default class if there is no other; off serves none (default proa)",
			Set: setOne(func(c *Config, v string) error {
				if c.Ingress.Class = v; v == "off" {
					c.Ingress.Class = ""
					return nil
				}
				return checkName(v)
			})},
		{Name: "ingress-http-port", Help: "serve Ingresses and Gateways by HTTP at port `N`; 0 serves none (default 80)",
			Set: setOne(func(c *Config, v string) (err error) { c.Ingress.HTTPPort, err = parsePort(v); return err })},
		{Name: "ingress-https-port", Help: "serve Ingresses and Gateways by HTTPS at port `N`; 0 serves none (default 443)",
			Set: setOne(func(c *Config, v string) (err error) { c.Ingress.HTTPSPort, err = parsePort(v); return err })},
	}, gatewaySettings()...)
}

func (c *Config) checkIngress() error {
	if i := c.Ingress; i.Class != "" && i.HTTPPort != 0 && i.HTTPPort == i.HTTPSPort {
		return fmt.Errorf("ingress-http-port and ingress-https-port are both %d; one port is for one of them", i.HTTPPort)
	}
	return nil
}

// ServesIngresses tells whether Ingresses are served.
func (c *Config) ServesIngresses() bool { return c.Node.Name != "" && c.Ingress.Class != "" }
