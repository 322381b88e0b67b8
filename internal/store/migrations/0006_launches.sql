-- +goose Up
-- What a launch is doing that takes long, as pulling an image does (CT-10): a sentence for people. '' when there is nothing to say.
ALTER TABLE agents ADD COLUMN detail TEXT NOT NULL DEFAULT '';
