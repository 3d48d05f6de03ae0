package restored

import (
	"context"
	"fmt"
	"time"
)

// ObjectionTime is for how long after a restore nobody takes new slots. A backup knows nothing of claims
// that were made since; meanwhile nodes make those of the containers that they run again. They notice
// within lastAsk, start again and read the API server.
const ObjectionTime = 20 * time.Second

// AwaitObjections waits until new slots may be taken.
func AwaitObjections(ctx context.Context, until time.Time) error {
	left := time.Until(until)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the API server's data may have been restored from a backup: new slots are taken in %s, when other nodes have had time to claim theirs again",
			time.Until(until).Round(time.Second))
	}
}
