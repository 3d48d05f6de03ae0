package ledger

import "hash/maphash"

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func keyOf(name string) setKey {
	return setKey{maphash.String(seeds[0], name), maphash.String(seeds[1], name)}
}

// toggled is the set's key with the member added or, if it is in the set, removed.
func (k setKey) toggled(member setKey) setKey { return setKey{k[0] ^ member[0], k[1] ^ member[1]} }
