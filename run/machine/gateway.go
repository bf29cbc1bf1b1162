package machine

import (
	"context"
	"slices"
	"sync"

	"proa.dev/network/gateway"
	"proa.dev/run/bootstraproles"
)

// beginGateway serves Gateways once their definitions are installed.
func (s *Machine) beginGateway(ctx context.Context, wg *sync.WaitGroup) {
	if !s.ServesGateways() {
		return
	}
	wg.Go(func() {
		s.Persist(ctx, "gateway", func() error {
			return gateway.Run(ctx, gateway.Config{
				NodeName: s.Node.Name, Class: s.Ingress.GatewayClass, Ranges: slices.Concat(s.ServiceCIDRs, s.ClusterCIDRs()),
				Client: s.AccountClient(bootstraproles.GatewayAccount), Metrics: s.gateways, Record: s.RecordHops,
				Answered: s.answers.Answered,
				Log:      s.Log(),
			})
		})
	})
}
