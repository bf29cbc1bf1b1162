package machine

import (
	"context"
	"sync"

	"proa.dev/network/policy"
)

// policyPart is the name of the part that enforces network policies.
const policyPart = "network-policy"

// policies enforces network policies for the Pods of the node. The pod network asks before it connects a Pod.
func (p *place) policies(ctx context.Context, wg *sync.WaitGroup) (err error) {
	p.guard, err = policy.New(policy.Config{NodeName: p.Name, Open: p.client.View, Answers: p.dns(), Table: policiesOf(p.dataDir), Log: p.log, Report: func(err error) { p.health.Set(policyPart, err) }})
	if err != nil {
		return err
	}
	wg.Go(func() {
		defer p.numbers.add(p.guard.Collectors())()
		p.persist(ctx, policyPart, func() error { return p.guard.Run(ctx) })
	})
	return nil
}

// policiesOf names the rules of network policies, apart for each cluster.
func policiesOf(dataDir string) string {
	if c := networkOf(dataDir, "", nil); c.Table != "" {
		return c.Table + "-policies"
	}
	return ""
}
