package setting

import "github.com/kici-go/kici/internal/store/db"

func updateOf(row db.Setting, data string) db.UpdateSettingsParams {
	return db.UpdateSettingsParams{Scope: row.Scope, Version: row.Version + 1, Data: data, Now: row.UpdatedAt, UpdatedBy: row.UpdatedBy}
}
