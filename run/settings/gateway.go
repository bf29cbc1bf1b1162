package settings

// gatewaySettings returns the settings about the Gateway API.
func gatewaySettings() []Setting {
	return []Setting{
		{Name: "gateway-class", Help: "serve Gateways of the GatewayClass `NAME`, which is created when the definitions of the Gateway API are installed; off serves none (default proa)",
			Set: setOne(func(c *Config, v string) error {
				if c.Ingress.GatewayClass = v; v == "off" {
					c.Ingress.GatewayClass = ""
					return nil
				}
				return checkName(v)
			})},
	}
}

// ServesGateways tells whether Gateways are served once their definitions are installed.
func (c *Config) ServesGateways() bool {
	return c.Node.Name != "" && c.Ingress.GatewayClass != ""
}
