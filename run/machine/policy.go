package machine

import (
	"context"
	"sync"

	"proa.dev/network/networkpolicy"
	"proa.dev/run/machine/nodefolder"
)

// policyPart is the name of the part that enforces network policies.
const policyPart = "network-policy"

// policies enforces network policies for the Pods of the node until ctx ends. The pod network asks it before it
// connects a Pod.
func (p *agentHost) policies(ctx context.Context, wg *sync.WaitGroup) (err error) {
	p.guard, err = networkpolicy.New(networkpolicy.Config{NodeName: p.Name, Open: p.client.View, DNSAddresses: p.dns(),
		Table: nodefolder.PolicyTable(p.dataDir), Log: p.log, Report: func(err error) { p.health.Set(policyPart, err) }})
	if err != nil {
		return err
	}
	wg.Go(func() {
		defer p.numbers.add(p.guard.Collectors())()
		p.persist(ctx, policyPart, func() error { return p.guard.Run(ctx) })
	})
	return nil
}
