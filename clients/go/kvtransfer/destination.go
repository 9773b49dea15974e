package kvtransfer

import (
	"maps"
	"slices"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// maxIndices are the pages and slots of a room, over all its groups.
const maxIndices = 262_144

// Destination is where a receiver wants a request's items.
type Destination struct {
	// Tokens of the request, at least 1.
	Tokens int32
	// PrefixTokens are leading tokens that are there already: a multiple of every page size, or all of Tokens.
	PrefixTokens int32
	// Pages by paged group, of the tokens from PrefixTokens on, in token order, none twice.
	Pages map[string][]int32
	// Slots by slot group, one of each.
	Slots map[string]int32
}

// wire checks a destination against the worker's own layout, and makes a message of it.
func (d *Destination) wire(layout *pb.Layout) (*pb.Destination, error) {
	if d.Tokens < 1 {
		return nil, invalidField("tokens", "must be at least 1, got %d", d.Tokens)
	}
	if d.PrefixTokens < 0 || d.PrefixTokens > d.Tokens {
		return nil, invalidField("prefix_tokens", "must be in [0, %d], got %d", d.Tokens, d.PrefixTokens)
	}
	if err := d.checkNames(layout); err != nil {
		return nil, err
	}
	wanted := &pb.Destination{Tokens: d.Tokens, PrefixTokens: d.PrefixTokens}
	for _, group := range layout.GetGroups() {
		indices, err := d.indices(group)
		if err != nil {
			return nil, err
		}
		if indices != nil {
			wanted.Groups = append(wanted.Groups, indices)
		}
	}
	listed := 0
	for _, group := range wanted.GetGroups() {
		listed += len(group.GetIndices())
	}
	if listed > maxIndices {
		return nil, invalidField("pages", "must be at most %d with the slots, got %d", maxIndices, listed)
	}
	return wanted, nil
}

func (d *Destination) checkNames(layout *pb.Layout) error {
	kinds := map[string]pb.BufferGroup_Kind{}
	for _, group := range layout.GetGroups() {
		kinds[group.GetName()] = group.GetKind()
	}
	for _, name := range slices.Sorted(maps.Keys(d.Pages)) {
		if kinds[name] != pb.BufferGroup_KIND_PAGED {
			return invalidField("pages["+name+"]", "must be a paged group of the layout, got %q", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Slots)) {
		if kinds[name] != pb.BufferGroup_KIND_SLOT {
			return invalidField("slots["+name+"]", "must be a slot group of the layout, got %q", name)
		}
	}
	return nil
}

// indices are those of one group; nil if the group may be left out and is.
func (d *Destination) indices(group *pb.BufferGroup) (*pb.GroupIndices, error) {
	name := group.GetName()
	if group.GetKind() == pb.BufferGroup_KIND_SLOT {
		slot, given := d.Slots[name]
		if !given {
			return nil, invalidField("slots["+name+"]", "must be given with the offer")
		}
		return &pb.GroupIndices{Group: name, Indices: []int32{slot}}, check("slots["+name+"]", group, []int32{slot})
	}
	pages, given := d.Pages[name]
	if !given && group.GetAllowMissing() {
		return nil, nil
	}
	size := group.GetPageTokens()
	first, count := d.PrefixTokens, 0
	if d.PrefixTokens == d.Tokens {
		first = 0 // no page moves
	} else if d.PrefixTokens%size != 0 {
		return nil, invalidField("prefix_tokens", "must be a multiple of %d (page_tokens of %s) or all %d tokens, got %d",
			size, name, d.Tokens, d.PrefixTokens)
	} else {
		count = int((d.Tokens-1)/size + 1 - d.PrefixTokens/size)
	}
	if len(pages) != count {
		return nil, invalidField("pages["+name+"]", "%d tokens take %d pages of %d, got %d",
			d.Tokens-d.PrefixTokens, count, size, len(pages))
	}
	return &pb.GroupIndices{Group: name, FirstToken: first, Indices: slices.Clone(pages)},
		check("pages["+name+"]", group, pages)
}

// check refuses indices outside the group's memory, and any given twice.
func check(field string, group *pb.BufferGroup, indices []int32) error {
	items := int64(1) << 31
	for _, part := range group.GetParts() {
		for _, region := range part.GetRegions() {
			items = min(items, region.GetItemCount())
		}
	}
	seen := make(map[int32]bool, len(indices))
	for _, index := range indices {
		if index < 0 || int64(index) >= items {
			return invalidField(field, "must be in [0, %d), got %d", items, index)
		}
		if seen[index] {
			return invalidField(field, "names %d twice", index)
		}
		seen[index] = true
	}
	return nil
}
